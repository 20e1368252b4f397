package kernel

import (
	"runtime"
	"testing"

	"github.com/spool-run/spool"
)

// An engine that is closed while a zygote is being started waits for neither its
// imports nor their time limit.
func TestCloseWhileAZygoteStarts(t *testing.T) {
	t.Parallel()
	for range 10 {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		l, _, err := e.makeLaunchSpec(&spool.Spec{})
		if err != nil {
			t.Fatal(err)
		}
		list, _, err := candidates("", l.cwd, l.env)
		if err != nil || len(list) == 0 {
			t.Fatalf("candidates: %v, %v", list, err)
		}
		z := e.makeZygote(list[0], l)
		for started := false; !started; runtime.Gosched() {
			z.mu.Lock()
			started = z.sock != nil
			z.mu.Unlock()
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
