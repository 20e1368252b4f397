package keeper_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host/backendtest"
)

// TestIDOfRemovedRun checks that a run is found that has the ID of one that this
// backend removed, however soon it has ended and whichever process started it.
func TestIDOfRemovedRun(t *testing.T) {
	dir := stateDir(t)
	b, other := open(t, dir, "one"), open(t, dir, "one")
	spec := backendtest.Shell("exit 0")
	spec.ID = "again"
	complete := func(backend spool.Backend) {
		t.Helper()
		if _, err := backend.Start(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if _, err := spool.Attach(backend, spec.ID).Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, next := range []spool.Backend{b, other} {
		complete(b)
		if _, err := b.Remove(t.Context(), []spool.RunID{spec.ID}, false); err != nil {
			t.Fatal(err)
		}
		complete(next)
		if _, err := b.Stat(t.Context(), spec.ID); err != nil {
			t.Errorf("the run that was started next: %v", err)
		}
		if got, err := spool.Attach(b, spec.ID).Wait(t.Context()); err != nil || got.Kind != spool.Exited {
			t.Errorf("the run that was started next: %v, %v", got, err)
		}
		if _, err := b.Remove(t.Context(), []spool.RunID{spec.ID}, false); err != nil {
			t.Fatal(err)
		}
	}
}
