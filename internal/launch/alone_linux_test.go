package launch

import (
	"testing"

	"github.com/spool-run/spool/internal/polltest"
)

// The group of a tree that is one process can be used again after a kill, and that of a
// larger one cannot.
func TestKillOfOneProcessKeepsItsGroup(t *testing.T) {
	l := open(t, TreeCgroup)
	for _, tt := range []struct {
		script string
		killed bool
	}{{"echo up; exec sleep 1000", false}, {"sleep 1000 & echo up; wait", true}} {
		tree, _ := spawn(t, l, tt.script)
		slot := tree.slot
		if err := tree.Kill(); err != nil {
			t.Fatal(err)
		}
		if status, err := tree.Reap(); err != nil || !status.Signaled() {
			t.Errorf("%s: %#x, %v", tt.script, status, err)
		}
		polltest.Until(t, "empty", slot.empty)
		if slot.killed != tt.killed {
			t.Errorf("%s: the group is killed: %v, want %v", tt.script, slot.killed, tt.killed)
		}
		tree.Release()
	}
}

// What a leader forks while it is killed ends with it.
func TestKillWhileForking(t *testing.T) {
	l := open(t, TreeCgroup)
	for range 200 {
		// Until its first fork the leader is alone.
		tree, _ := spawn(t, l, "echo up; sleep 1000 & sleep 1000 & wait")
		if err := tree.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Fatal(err)
		}
		polltest.Until(t, "empty", func() bool {
			m, err := tree.Count()
			return err == nil && m.None()
		})
		tree.Release()
	}
}
