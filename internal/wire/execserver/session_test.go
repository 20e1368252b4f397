package execserver

import "testing"

// TestLostConnectionStartsNothing checks that a request read from a connection
// before another took over its session starts nothing: the client has repeated
// the request on the new connection and would never learn of the process.
func TestLostConnectionStartsNothing(t *testing.T) {
	old, taken := new(conn), new(conn)
	sess := &session{id: "s", conn: taken, procs: make(map[string]*process)}
	if _, err := sess.reserve("p", old); err == nil || len(sess.procs) > 0 {
		t.Errorf("reserved for a connection that lost the session: %v", err)
	}
	if _, err := sess.reserve("p", taken); err != nil {
		t.Error(err)
	}
}
