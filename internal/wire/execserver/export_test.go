package execserver

// Limits for tests of another package.
const (
	MaxInFlightBytes = maxInFlightBytes
	MaxFollows       = maxFollows
)

// Received returns how many bytes of messages the server holds, and whether
// messages wait for room.
func (s *Server) Received() (bytes int64, crowded bool) { return s.intake.Used(), s.intake.Crowded() }
