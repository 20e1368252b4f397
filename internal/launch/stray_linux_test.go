package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// outside makes a control group that is not of a launcher.
func outside(t *testing.T) string {
	t.Helper()
	r, err := findRoots()
	if err != nil || r.v2 == "" {
		skiptest.Missing(t, "no control groups here: %v", err)
	}
	dir := filepath.Join(r.v2, "stray-test-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o700); err != nil {
		skiptest.Missing(t, "make a control group: %v", err)
	}
	t.Cleanup(func() {
		if err := removeGroup(dir, time.Now().Add(sweepTime)); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "cgroup.procs")
}

// waitEnd waits until the process of a pidfd has ended.
func waitEnd(pidfd int) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 60_000)
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0:
			return os.ErrDeadlineExceeded
		default:
			return err
		}
	}
}

// TestKillOutsideTheGroup checks that processes which moved to another control
// group are killed with their tree.
func TestKillOutsideTheGroup(t *testing.T) {
	const orphan = `sh -c "echo 0 >GROUP; echo \$\$; exec sleep 1000 >/dev/null" &`
	for name, tt := range map[string]struct {
		script string
		pids   int // limit
	}{
		"leader":     {"echo 0 >GROUP && echo $$; exec sleep 1000", 0},
		"child":      {"sh -c 'echo 0 >GROUP && echo $$; exec sleep 1000'; :", 0},
		"grandchild": {"setsid sh -c 'echo 0 >GROUP; sleep 1000 & echo $!; wait'; :", 0},
		// The leader says the number of an orphan once its parent has ended.
		"orphan":                         {"pid=$(sh -c '" + orphan + "'); echo $pid; exec sleep 1000", 0},
		"orphan of another session":      {"exec setsid -f sh -c 'sleep 1000 & pid=$(sh -c '\\''" + orphan + "'\\''); echo $pid; wait'; :", 0},
		"orphan in a session of its own": {"pid=$(setsid sh -c '" + orphan + "'); echo $pid; exec sleep 1000", 64},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, TreeCgroup)
			if tt.pids > 0 && l.groups.pids == "" {
				skiptest.Missing(t, "trees have one group each here")
			}
			tree, line := spawnLimited(t, l, strings.ReplaceAll(tt.script, "GROUP", outside(t)), tt.pids)
			pid, err := strconv.Atoi(line)
			if err != nil {
				t.Fatalf("the script said %q", line)
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if err := tree.Kill(); err != nil {
				t.Error(err)
			}
			for what, fd := range map[string]int{"leader": tree.PidFD(), "process outside": fd} {
				if err := waitEnd(fd); err != nil {
					t.Errorf("the %s lives: %v", what, err)
					_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
				}
			}
			if tree.Strays() == 0 {
				t.Error("no process was found outside of the group")
			}
			if _, err := tree.Reap(); err != nil {
				t.Error(err)
			}
			tree.Release()
		})
	}
}

// TestKillSparesOtherTrees checks that a process in the control group of another
// tree is killed with that tree only, even if it shares a session with this one:
// one process can fork the leaders of several trees.
func TestKillSparesOtherTrees(t *testing.T) {
	l := open(t, TreeCgroup)
	other, _ := spawn(t, l, "echo ready; exec sleep 1000")
	tree, line := spawn(t, l, `pid=$(sh -c 'sh -c "echo 0 >`+other.Group()+`/cgroup.procs; echo \$\$; exec sleep 1000 >/dev/null" &'); echo $pid; exec sleep 1000`)
	pid, err := strconv.Atoi(line)
	if err != nil {
		t.Fatalf("the script said %q", line)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	end := func(tree *Tree) {
		if err := tree.Kill(); err != nil {
			t.Error(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Error(err)
		}
		tree.Release()
	}
	end(tree)
	if tree.Strays() > 0 {
		t.Error("a process of another tree was killed")
	}
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n > 0 || err != nil && err != unix.EINTR {
		t.Errorf("it has ended: %d, %v", n, err)
	}
	end(other)
	if err := waitEnd(fd); err != nil {
		t.Errorf("it lives: %v", err)
	}
}

// TestKillSparesItself kills a tree while a thread of this process is in its group to
// fork, and a child that has not left the session of this process.
func TestKillSparesItself(t *testing.T) {
	l := open(t, TreeCgroup)
	if l.groups.pids == "" {
		skiptest.Missing(t, "trees have one group each here")
	}
	tree, _ := spawnLimited(t, l, "echo ready; exec sleep 1000", 64)
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(tree.Group(), "cgroup.procs"), strconv.Itoa(child.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	entered, leave, left := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(left)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		entered <- write(filepath.Join(tree.slot.pids, "tasks"), "0")
		<-leave
		if _, err := unix.Write(l.groups.homeTasks, []byte("0")); err != nil {
			t.Error(err)
		}
	}()
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	if err := tree.Kill(); err != nil {
		t.Error(err)
	}
	if n := tree.Strays(); n > 0 {
		t.Errorf("%d processes were found outside of the group", n)
	}
	_ = child.Wait() // it was killed with the group
	close(leave)
	<-left
	if _, err := tree.Reap(); err != nil {
		t.Error(err)
	}
	tree.Release()
}
