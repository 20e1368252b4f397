package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestNoMoreProcesses checks a start without free pids: it fails with the
// cause, live processes are not affected, and a later start succeeds. The thread that
// forks enters the group, as it does for an isolated run; a child that enters the group
// itself is charged to that of this process, whose limit no test can reach.
func TestNoMoreProcesses(t *testing.T) {
	l := open(t, TreeCgroup)
	if l.groups.pids == "" {
		skiptest.Missing(t, "needs a v1 hierarchy for pids")
	}
	first, _ := spawn(t, l, "echo up; exec sleep 1000")
	limit := filepath.Join(l.groups.pids, "pids.max") // for all trees together
	current, err := os.ReadFile(filepath.Join(l.groups.pids, "pids.current"))
	if err != nil {
		t.Fatal(err)
	}
	if err := write(limit, strings.TrimSpace(string(current))); err != nil {
		t.Fatal(err)
	}
	c := sh("echo hi")
	c.Pids = 100
	c.Fork = syscall.ForkExec
	for range 3 {
		if _, err := l.Start(c); !errors.Is(err, syscall.EAGAIN) {
			t.Fatalf("start: %v, want EAGAIN", err)
		}
	}
	if m, err := first.Count(); err != nil || m.Group != 1 {
		t.Errorf("the other tree has %+v, %v", m, err)
	}
	if err := write(limit, "max"); err != nil {
		t.Fatal(err)
	}
	next, err := l.Start(c)
	if err != nil {
		t.Fatalf("start after the limit was raised: %v", err)
	}
	for _, tree := range []*Tree{next, first} {
		if err := tree.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Error(err)
		}
		tree.Release()
	}
}

// TestFailedStartLeavesNoProcess checks that a start that fails after the fork leaves no
// process behind.
func TestFailedStartLeavesNoProcess(t *testing.T) {
	each(t, func(t *testing.T, l *Launcher) {
		// The lists of children in /proc have orphans of other trees, too, so this
		// asks for the one child that was forked.
		pid := 0
		c := sh("exec sleep 1000")
		c.Fork = func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
			var err error
			pid, err = syscall.ForkExec(path, argv, attr)
			return pid, err
		}
		disable := failpoint.Enable("launch.forked", 0, failpoint.Fail(unix.EMFILE))
		defer disable()
		if _, err := l.Start(c); !errors.Is(err, unix.EMFILE) || pid == 0 {
			t.Fatalf("start of process %d: %v", pid, err)
		}
		if _, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); err != unix.ECHILD {
			stat, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			t.Errorf("the child is left: %v; %s", err, stat)
		}
		disable()
		failing := failpoint.Enable("launch.reap", 0, failpoint.Fail(unix.ECHILD))
		defer failing()
		tree, err := l.Start(sh("exit 3"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Reap(); !errors.Is(err, unix.ECHILD) {
			t.Errorf("reap: %v", err)
		}
		tree.Release()
	})
}
