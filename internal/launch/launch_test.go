//go:build linux

package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func open(t *testing.T, mode TreeMode) *Launcher {
	t.Helper()
	l, err := New(Options{Mode: mode})
	if err != nil {
		if mode == TreeCgroup {
			skiptest.Missing(t, "no control groups here: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

func sh(script string) Command {
	return Command{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

// spawn starts a script and returns its tree and its first line of output.
func spawn(t *testing.T, l *Launcher, script string) (*Tree, string) {
	t.Helper()
	return spawnLimited(t, l, script, 0)
}

// spawnLimited is spawn with a limit of processes.
func spawnLimited(t *testing.T, l *Launcher, script string, pids int) (*Tree, string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := sh(script)
	c.Pids = pids
	c.Files = []uintptr{w.Fd(), w.Fd(), 2}
	tree, err := l.Start(c)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1000)
	n, err := r.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return tree, strings.TrimSpace(string(buf[:n]))
}

func each(t *testing.T, f func(t *testing.T, l *Launcher)) {
	for _, mode := range []TreeMode{TreeCgroup, TreeWalk} {
		t.Run(string(mode), func(t *testing.T) { f(t, open(t, mode)) })
	}
}

func TestReapReportsStatus(t *testing.T) {
	each(t, func(t *testing.T, l *Launcher) {
		tree, err := l.Start(sh("exit 7"))
		if err != nil {
			t.Fatal(err)
		}
		ws, err := tree.Reap()
		if err != nil || !ws.Exited() || ws.ExitStatus() != 7 {
			t.Errorf("status %v, %v", ws, err)
		}
		if err := tree.SignalGroup(unix.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after the end: %v", err)
		}
		tree.Release()
		if err := tree.Kill(); err != nil {
			t.Errorf("kill after the end: %v", err)
		}
	})
}

func TestStartErrors(t *testing.T) {
	each(t, func(t *testing.T, l *Launcher) {
		for path, want := range map[string]error{"/no/such": unix.ENOENT, "/etc/passwd": unix.EACCES} {
			if _, err := l.Start(Command{Path: path, Argv: []string{path}}); !errors.Is(err, want) {
				t.Errorf("start %s: %v, want %v", path, err, want)
			}
		}
	})
}

func TestCountFindsEscapedProcesses(t *testing.T) {
	each(t, func(t *testing.T, l *Launcher) {
		tree, _ := spawn(t, l, "sleep 1000 & setsid sh -c 'echo up; exec sleep 1000' & wait")
		m, err := tree.Count()
		if err != nil || m != (Members{Group: 2, Escaped: 1}) {
			t.Errorf("members are %+v, %v", m, err)
		}
		if err := tree.SignalAll(unix.SIGKILL); err != nil {
			t.Error(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Error(err)
		}
		tree.Release()
	})
}

// TestOtherChildrenKeepTheirStatus checks that a child of another package keeps its
// exit status.
func TestOtherChildrenKeepTheirStatus(t *testing.T) {
	each(t, func(t *testing.T, l *Launcher) {
		other := exec.Command("/bin/sh", "-c", "exit 9")
		other.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			tree, _ := spawn(t, l, "(setsid sh -c 'echo up; sleep 1000 & sleep 1000' &); sleep 1000")
			if err := tree.Kill(); err != nil {
				t.Error(err)
			}
			if _, err := tree.Reap(); err != nil {
				t.Error(err)
			}
			tree.Release()
		}
		var exit *exec.ExitError
		if err := other.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 9 {
			t.Errorf("another child: %v", err)
		}
	})
}

func TestOrphansAreReaped(t *testing.T) {
	l := open(t, TreeWalk)
	tree, pid := spawn(t, l, "(setsid sh -c 'echo $$; exec sleep 1000' &); sleep 1000")
	if err := tree.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := tree.Reap(); err != nil {
		t.Error(err)
	}
	tree.Release()
	if _, err := tree.Count(); err != nil { // searches and reaps
		t.Error(err)
	}
	if _, err := os.Stat("/proc/" + pid); !errors.Is(err, os.ErrNotExist) {
		stat, _ := os.ReadFile("/proc/" + pid + "/stat")
		t.Errorf("the orphan is still there: %s", stat)
	}
}

func TestSweepOwner(t *testing.T) {
	for _, mode := range []TreeMode{TreeCgroup, TreeWalk} {
		t.Run(string(mode), func(t *testing.T) {
			l := open(t, mode)
			tree, pid := spawn(t, l, "setsid sh -c 'echo $$; exec sleep 1000' & exec sleep 1000")
			killed, err := SweepOwner(l.Owner()) // as if l had died
			if err != nil || killed < 2 {
				t.Errorf("killed %d, %v", killed, err)
			}
			ws, err := tree.Reap()
			if err != nil || ws.Signal() != unix.SIGKILL {
				t.Errorf("status %v, %v", ws, err)
			}
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			// A process leaves its control group a moment before it has ended.
			polltest.Until(t, "without the escaped process", func() bool {
				p, err := readProc(n)
				return err != nil || p.dead()
			})
			if left, _ := filepath.Glob("/sys/fs/cgroup/*/spool/" + l.Owner()); len(left) > 0 {
				t.Errorf("control groups are left: %v", left)
			}
			if killed, err := SweepOwner(l.Owner()); killed != 0 || err != nil {
				t.Errorf("again: killed %d, %v", killed, err)
			}
		})
	}
	for _, bad := range []string{"", ".", "..", "a/b", "a\x00"} {
		if _, err := SweepOwner(bad); err == nil {
			t.Errorf("owner %q is accepted", bad)
		}
	}
}

func TestGroupsAreReused(t *testing.T) {
	l := open(t, TreeCgroup)
	for range 20 {
		tree, err := l.Start(sh("exit 0"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Fatal(err)
		}
		tree.Release()
	}
	if n := len(subdirs(l.groups.tree)); n > 3 {
		t.Errorf("%d groups were made for one process at a time", n)
	}
}

// TestGroupWithProcessesIsNotReused checks that a group with live processes is not given
// to another tree.
func TestGroupWithProcessesIsNotReused(t *testing.T) {
	l := open(t, TreeCgroup)
	first, pid := spawn(t, l, "setsid sh -c 'echo $$; exec sleep 1000' &")
	if _, err := first.Reap(); err != nil {
		t.Fatal(err)
	}
	first.Release()
	for range 5 {
		tree, err := l.Start(sh("exec sleep 1000"))
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := tree.Reap(); err != nil {
			t.Fatal(err)
		}
		tree.Release()
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := readProc(n); err != nil || p.dead() {
		t.Error("killing one tree ended a process of another")
	}
}

func TestLauncherHammer(t *testing.T) {
	each(t, func(t *testing.T, l *Launcher) {
		starts := 15
		if l.walk != nil { // a kill reads all of /proc several times
			starts = 4
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i := range starts {
					tree, err := l.Start(sh("sleep 1000 & exit 0"))
					if err != nil {
						t.Error(err)
						return
					}
					if i%2 == 0 {
						wg.Go(func() {
							if err := tree.Kill(); err != nil {
								t.Error(err)
							}
						})
					}
					if _, err := tree.Reap(); err != nil {
						t.Error(err)
					}
					if err := tree.Kill(); err != nil {
						t.Error(err)
					}
					tree.Release()
				}
			})
		}
		wg.Wait()
	})
}

func TestParseStat(t *testing.T) {
	const line = "42 (a) b (c)) S 1 40 39 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 0 0 18446744073709551615 0"
	got, err := parseStat([]byte(line))
	if want := (proc{pid: 42, ppid: 1, pgrp: 40, sid: 39, state: 'S', start: 12345}); err != nil || got != want {
		t.Errorf("parsed %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"", "1", "1 (", "1 (x) S", ") 1 (", "x (y) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func TestParseRoots(t *testing.T) {
	for _, tt := range []struct {
		name, mounts, own string
		want              roots
	}{
		{
			"v2 only, in a session",
			"30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n",
			"0::/user.slice/session-2.scope\n",
			roots{v2: "/sys/fs/cgroup/user.slice/session-2.scope"},
		},
		{
			"both",
			"30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n31 24 0:27 / /sys/fs/cgroup/uni\\040fied rw shared:1 - cgroup2 cgroup2 rw\n",
			"8:pids:/a\n0::/\n",
			roots{v2: "/sys/fs/cgroup/uni fied", pids: "/sys/fs/cgroup/pids/a"},
		},
		{
			"a container that sees the hierarchy of its host",
			"30 24 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n",
			"0::/docker/x\n",
			roots{v2: "/sys/fs/cgroup"},
		},
		{"outside of what is mounted", "30 24 0:26 /docker/x /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/docker/y\n", roots{}},
		{"outside of the namespace", "30 24 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n", "0::/../other\n", roots{}},
		{"garbage", "x\n\n- - -\n", ":\n::\n", roots{}},
	} {
		if got := parseRoots(tt.mounts, tt.own); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Mode: "bogus"}, {Owner: "a/b"}, {Owner: ".."}} {
		if l, err := New(o); err == nil {
			t.Errorf("%+v is accepted", o)
			_ = l.Close()
		}
	}
	l := open(t, TreeWalk)
	if _, err := l.Start(Command{Path: "/bin/true", Argv: []string{"true"}, Pids: 5}); !errors.Is(err, ErrNoPidsLimit) {
		t.Errorf("a limit without groups: %v", err)
	}
	if g := l.Guarantees(); g.Kill != KillWalk || g.Pids {
		t.Errorf("guarantees are %+v", g)
	}
	if !slices.Contains([]string{KillCgroup, KillWalk}, open(t, TreeAuto).Guarantees().Kill) {
		t.Error("no mechanism")
	}
}

// TestStartOnAThread starts a program on a thread of the caller's: it has its limit of
// processes all the same. The caller's thread may end.
func TestStartOnAThread(t *testing.T) {
	l := open(t, TreeCgroup)
	if !l.Guarantees().Pids {
		skiptest.Missing(t, "no limit of processes here")
	}
	threads := make(chan int, 2)
	c := sh("sleep 60 & sleep 60 & sleep 60 & sleep 60 & exit 0")
	c.Pids = 3
	c.On = func(f func()) {
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends
			threads <- unix.Gettid()
			f()
		}()
	}
	c.Fork = func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		threads <- unix.Gettid()
		return syscall.ForkExec(path, argv, attr)
	}
	tree, err := l.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Release()
	if on, forked := <-threads, <-threads; on != forked {
		t.Errorf("thread %d forks, want %d", forked, on)
	}
	if _, err := tree.Reap(); err != nil {
		t.Fatal(err)
	}
	if tree.Refused() == 0 {
		t.Error("the limit refused no process")
	}
	if err := tree.Kill(); err != nil {
		t.Error(err)
	}
}
