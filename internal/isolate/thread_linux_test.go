//go:build amd64 || arm64

package isolate

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// wait calls a function with the thread of a lease's sandbox and waits for its end.
func (l *Lease) wait(f func()) {
	done := make(chan struct{})
	l.in.on()(func() {
		defer close(done)
		f()
	})
	<-done
}

// forkThere is [Lease.Fork] on the thread of the sandbox.
func (l *Lease) forkThere(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	l.wait(func() { pid, err = l.Fork(path, argv, attr) })
	return pid, err
}

// refusal returns what setns says to a descriptor that is none: EPERM with a filter.
func refusal(key [2]uintptr) syscall.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETNS, none, 0, 0, 0, key[0], key[1])
	return errno
}

// TestRunHasNoKey makes the calls that the thread may make with the key in a run that
// inherited the filter, without the key and with others.
func TestRunHasNoKey(t *testing.T) {
	const setting = "run"
	if os.Getenv(inside) == setting {
		random := make([]byte, 16)
		for i := range 1000 {
			key := [2]uintptr{}
			if i > 0 {
				_, _ = rand.Read(random)
				for j, b := range random {
					key[j/8] = key[j/8]<<8 | uintptr(b)
				}
			}
			_, _, errno := unix.RawSyscall6(unix.SYS_CLONE3, 0, 0, 0, 0, key[0], key[1])
			if e := refusal(key); e != unix.EPERM || errno != unix.ENOSYS {
				syscall.Exit(3)
			}
		}
		syscall.Exit(7)
	}
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		l := newBox(t, w, dir)
		attr := attributes(t)
		attr.Dir, attr.Env = dir, []string{inside + "=" + setting}
		pid, err := l.forkThere(self, []string{"spool", "-test.run=^TestRunHasNoKey$"}, attr)
		if err != nil {
			t.Fatal(err)
		}
		var status unix.WaitStatus
		if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.ExitStatus() != 7 {
			t.Errorf("status %#x, want exit code 7: %v", status, err)
		}
		inherits := func() bool {
			c := &child{}
			l.in.(*sandbox).inherit(c)
			return c.inherits && c.filter == nil
		}
		if inherits() {
			t.Error("a program that another thread starts does not install the filter")
		}
		l.wait(func() { // the thread is filtered, too
			if !inherits() {
				t.Error("a program that the thread starts installs the filter")
			}
			if e := refusal([2]uintptr{}); e != unix.EPERM {
				t.Errorf("setns on the thread without the key: %v", e)
			}
			if e := refusal(l.in.(*sandbox).key.Args()); e != unix.EBADF {
				t.Errorf("setns on the thread with the key: %v", e)
			}
		})
	})
}

// TestOtherThreadsHaveNoFilter starts programs on the thread of a sandbox while the
// runtime makes other threads.
func TestOtherThreadsHaveNoFilter(t *testing.T) {
	if refusal([2]uintptr{}) != unix.EBADF {
		skiptest.Missing(t, "this process is filtered")
	}
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		l := newBox(t, w, dir)
		const threads = 16
		var wg sync.WaitGroup
		all := make(chan struct{})
		for range threads {
			if code := run(t, l.forkThere, dir, "exit 5"); code != 5 {
				t.Fatalf("exit code %d, want 5", code)
			}
			wg.Go(func() {
				runtime.LockOSThread() // until all have one
				defer runtime.UnlockOSThread()
				if e := refusal([2]uintptr{}); e != unix.EBADF {
					t.Errorf("another thread is filtered: %v", e)
				}
				own, err := os.Readlink("/proc/thread-self/ns/pid")
				if err != nil {
					t.Error(err)
				}
				if children, err := os.Readlink("/proc/thread-self/ns/pid_for_children"); err != nil || children != own {
					t.Errorf("children of another thread begin in %s, want %s: %v", children, own, err)
				}
				<-all
			})
		}
		close(all)
		wg.Wait()
	})
}

// TestThreadIsReplaced ends the thread of a sandbox, as the launcher does with one that
// cannot leave a control group.
func TestThreadIsReplaced(t *testing.T) {
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		l := newBox(t, w, dir)
		s := l.in.(*sandbox)
		for range 3 {
			first := s.starter()
			l.wait(runtime.Goexit)
			<-first.ended
			if first.here() || s.starter() == first {
				t.Error("a thread that has ended is used")
			}
			if code := run(t, l.forkThere, dir, "line='"+rightless+"'; export line; eval \"$line\""); code != 0 {
				t.Errorf("exit code %d", code)
			}
		}
		last := s.starter()
		s.close()
		if !last.over() || s.starter() != nil {
			t.Error("a sandbox that is closed has a thread")
		}
		if _, err := l.forkThere("/bin/true", []string{"true"}, attributes(t)); err == nil {
			t.Error("a program was started in a sandbox that is closed")
		}
	})
}

// TestSandboxClosesDuringStarts closes a sandbox whose thread is at a start, while
// another waits for it.
func TestSandboxClosesDuringStarts(t *testing.T) {
	boxes(t, func(t *testing.T, w wall) {
		dir := t.TempDir()
		l := newBox(t, w, dir)
		at, next := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			l.wait(func() {
				close(at)
				<-next
				if pid, err := l.Fork("/bin/true", []string{"true"}, attributes(t)); err == nil {
					reap(pid)
				}
			})
		})
		<-at
		wg.Go(func() {
			if pid, err := l.forkThere("/bin/true", []string{"true"}, attributes(t)); err == nil {
				reap(pid)
			}
		})
		wg.Go(l.in.close)
		close(next)
		wg.Wait()
	})
}

// TestStartsInOneSandbox starts many programs at once in a sandbox that they share, and
// ends it.
func TestStartsInOneSandbox(t *testing.T) {
	l := newLauncher(t, launch.TreeAuto)
	m := New(l)
	defer m.Close()
	dir := resolved(t, t.TempDir())
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 3 {
				out, status, err := start(m, l, dir, true, nil, fmt.Sprintf("echo %d; exit %d", n, n))
				if err != nil || status.ExitStatus() != n || out != fmt.Sprintln(n) {
					t.Errorf("%q, status %#x: %v", out, status, err)
				}
			}
		})
	}
	wg.Wait()
}

// start starts a shell with a terminal as its input, or with /dev/null, in a sandbox or
// plain, and returns what it prints.
func start(m *Sandboxes, l *launch.Launcher, dir string, isolated bool, terminal *os.File, line string) (string, unix.WaitStatus, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	defer w.Close()
	stdin := terminal
	if stdin == nil {
		if stdin, err = os.Open(os.DevNull); err != nil {
			return "", 0, err
		}
		defer stdin.Close()
	}
	c := launch.Command{Path: "/bin/sh", Argv: []string{"sh", "-c", line}, Env: []string{"PATH=/usr/bin:/bin", "A=b c", "EMPTY="}, Dir: dir,
		Files: []uintptr{stdin.Fd(), w.Fd(), w.Fd()}, TTY: terminal != nil, Pids: 64}
	if isolated {
		lease, err := m.Start(&spool.Spec{Isolation: &spool.Isolation{Profile: string(Offline)}}, 64, &c)
		if err != nil {
			return "", 0, err
		}
		defer lease.Release()
		if err := LimitFiles(&c, lease, 100); err != nil {
			return "", 0, err
		}
	} else if err := LimitFiles(&c, nil, 100); err != nil {
		return "", 0, err
	}
	tree, err := l.Start(c)
	if err != nil {
		return "", 0, err
	}
	defer tree.Release()
	_ = w.Close()
	var out bytes.Buffer
	_, readErr := io.Copy(&out, r)
	status, err := tree.Reap()
	if err == nil {
		err = readErr
	}
	return out.String(), status, err
}

// state prints what a program has from its start. Its number is another in a sandbox.
const state = `pwd
umask
ulimit -a
ulimit -Ha
env | sort
echo "arguments $0 $#"
while read name value; do
	case $name in SigPnd:|ShdPnd:|SigBlk:|SigIgn:|SigCgt:|Threads:|Umask:) echo $name $value;; esac
done </proc/$$/status
cat /proc/$$/oom_score_adj
ls /proc/$$/fd
read pid name status parent group session terminal foreground rest </proc/$$/stat
set -- $rest
echo nice ${11}
[ $group = $pid ] && [ $session = $pid ] && echo leader
[ $terminal = 0 ] && echo no terminal
[ $foreground = $pid ] && : </dev/tty && echo foreground
kill -TERM $$`

// TestStateInASandbox compares what a program has from its start in a sandbox with what
// it has plainly.
func TestStateInASandbox(t *testing.T) {
	l := newLauncher(t, launch.TreeAuto)
	if !l.Guarantees().Pids {
		skiptest.Missing(t, "no control groups with a limit of processes")
	}
	m := New(l)
	defer m.Close()
	dir := resolved(t, t.TempDir())
	for name, words := range map[string]string{"pipe": "no terminal", "terminal": "foreground"} {
		t.Run(name, func(t *testing.T) {
			var seen [2]string
			for i := range seen {
				var terminal *os.File
				if name == "terminal" {
					terminal = newTerminal(t)
				}
				var status unix.WaitStatus
				var err error
				if seen[i], status, err = start(m, l, dir, i == 1, terminal, state); err != nil || !status.Signaled() || status.Signal() != unix.SIGTERM {
					t.Fatalf("status %#x: %v", status, err)
				}
			}
			if seen[0] != seen[1] || !strings.Contains(seen[0], words) || !strings.Contains(seen[0], "leader") {
				t.Errorf("plain:\n%s\nin a sandbox:\n%s", seen[0], seen[1])
			}
		})
	}
}

// newTerminal returns the program's side of a terminal.
func newTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	slave, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		t.Fatal(errno)
	}
	f := os.NewFile(slave, "terminal")
	t.Cleanup(func() { f.Close() })
	return f
}

// TestThreadHasStartedNothing ends the threads of sandboxes. A process that is to die with
// its parent, and was started before, goes on: the thread that started it has not ended.
func TestThreadHasStartedNothing(t *testing.T) {
	boxes(t, func(t *testing.T, w wall) {
		const children = 20
		var cmds []*exec.Cmd
		for range children {
			cmd := exec.Command("sleep", "infinity")
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			cmds = append(cmds, cmd)
		}
		dir := t.TempDir()
		s := newBox(t, w, dir).in.(*sandbox)
		for range children {
			first := s.starter()
			first.do(func() {
				if parent, err := hasChildren(); parent || err != nil {
					t.Errorf("the thread has children: %v, %v", parent, err)
				}
				runtime.Goexit()
			})
			<-first.ended
		}
		for _, cmd := range cmds {
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
				t.Errorf("a process died with the thread: %v", err)
			}
		}
	})
}
