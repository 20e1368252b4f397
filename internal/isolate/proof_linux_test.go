//go:build amd64 || arm64

package isolate

import (
	"os"
	"testing"

	"github.com/spool-run/spool/internal/gvisortest"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// newLauncher returns a launcher of the mode for one test.
func newLauncher(t testing.TB, mode launch.TreeMode) *launch.Launcher {
	t.Helper()
	l, err := launch.New(launch.Options{Mode: mode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// TestAttemptsFail makes every attempt behind every wall of this machine.
func TestAttemptsFail(t *testing.T) {
	gvisortest.Use(t)
	for _, mode := range []launch.TreeMode{launch.TreeAuto, launch.TreeWalk} {
		l := newLauncher(t, mode)
		for _, w := range walls() {
			if w.mechanism == GVisor && mode == launch.TreeWalk {
				continue // the end of its sandbox ends it in both, and it takes a few seconds
			}
			t.Run(w.name()+" "+l.Guarantees().Kill, func(t *testing.T) {
				p := test(t.Context(), l, w)
				if p.Err != nil {
					skiptest.Missing(t, "%v", p.Err)
				}
				t.Logf("has %s; %v", p.Has, p.Why)
				want := NewSet(Writes, NoNetwork)
				if w.apart() {
					want = Offline.Guarantees().With(Proxied)
				}
				if w.mechanism == GVisor {
					want = want.With(Narrow)
				}
				if w.mechanism == Namespaces && !w.subuid && os.Geteuid() == 0 && !l.Guarantees().Pids {
					want = want.Without(NewSet(Processes)) // limits of a user do not hold for root
				}
				if w.subuid || os.Geteuid() != 0 {
					want = want.With(Rootless)
				}
				want = want.With(Reads)
				if l.TryLimits(rigMemory, rigCPUs) == nil {
					want = want.With(Memory, Processor)
				}
				if lacks := want.Without(p.Has); len(lacks) > 0 {
					t.Errorf("lacks %s: %v", lacks, p.Why)
				}
			})
		}
	}
}

// TestAttemptsSucceedWithoutWalls checks the attempts: without isolation those that
// this user may do succeed.
func TestAttemptsSucceedWithoutWalls(t *testing.T) {
	l := newLauncher(t, launch.TreeAuto)
	r, err := newRig()
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	list, _, err := r.run(t.Context(), l, runOptions{})
	if err != nil {
		t.Fatal(err)
	}
	privileged := map[string]bool{"sysctl": true, "packet": true, "vsock": true}
	for _, a := range list {
		if !a.Escaped && a.Name != "daemon" && (!privileged[a.Name] || os.Geteuid() == 0) {
			t.Errorf("%s failed without isolation: %s", a.Name, a.Errno)
		}
	}
}
