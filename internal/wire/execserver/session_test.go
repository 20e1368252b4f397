package execserver

import "testing"

// A request that was read from a connection before another took its session
// over must not start anything: the client has asked the new one by then, and
// would hear of it from nobody.
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
