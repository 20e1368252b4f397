package execserver

// MaxInFlightBytes is maxInFlightBytes.
const MaxInFlightBytes = maxInFlightBytes

// Received returns how many bytes of messages the server holds, and whether
// messages wait for room.
func (s *Server) Received() (bytes int64, crowded bool) { return s.intake.Used(), s.intake.Crowded() }
