package host_test

import (
	"runtime"
	"testing"

	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/launch"
)

// TestKnownWhileAlive checks that a host stays registered while it has a live
// run.
func TestKnownWhileAlive(t *testing.T) {
	dir := t.TempDir()
	h := openWith(t, options(dir, launch.TreeAuto))
	known := func() bool {
		t.Helper()
		owners, err := host.Owners(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(owners) == 1
	}
	begin(t, h, "a", "read line")
	if err := h.Unregister(); err != nil || !known() {
		t.Errorf("unregistered with a live run: %v", err)
	}
	say(t, h, "a", "end")
	end(t, h, "a")
	for h.Live() > 0 { // its log is complete before it is sealed
		runtime.Gosched()
	}
	if err := h.Unregister(); err != nil || known() {
		t.Errorf("not unregistered: %v", err)
	}
	begin(t, h, "b", "read line")
	if !known() {
		t.Error("not known, with a live run")
	}
}
