package execserver

import (
	"cmp"
	"time"
)

// Limits for tests of another package.
const (
	MaxFollows    = maxFollows
	MaxUnanswered = maxUnanswered
)

// Received returns how many bytes of messages the server holds, and whether
// messages wait for room.
func (s *Server) Received() (bytes int64, crowded bool) { return s.intake.Used(), s.intake.Crowded() }

// SetWaits sets how long the server waits for a client that holds a session to
// answer a ping, for one that resumed a session to read, and for one that does not
// read while room is used up. Zero changes nothing. A client on a busy machine may
// take longer than the server waits by default.
func (s *Server) SetWaits(probe, hold, crowded time.Duration) {
	s.waits = waits{cmp.Or(probe, s.waits.probe), cmp.Or(hold, s.waits.hold), cmp.Or(crowded, s.waits.crowded)}
}

// SetInFlight bounds the bytes of unanswered requests of a connection.
func (s *Server) SetInFlight(n int) { s.inFlight = n }
