//go:build amd64 || arm64

package forkexec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func newStarter(t *testing.T) *Starter {
	t.Helper()
	s, err := NewStarter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// output starts a program whose output is a pipe, and returns the output and how the
// program ended.
func output(s *Starter, p Program) (string, syscall.WaitStatus, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return "", 0, errors.Join(err, w.Close())
	}
	defer null.Close()
	p.Files = append([]uintptr{null.Fd(), w.Fd(), null.Fd()}, p.Files...)
	pid, pidfd, err := s.Start(&p)
	if err := errors.Join(err, w.Close()); err != nil {
		return "", 0, err
	}
	defer unix.Close(pidfd)
	out, err := io.ReadAll(r) // to the end: nothing else holds the other end
	if err != nil {
		return "", 0, err
	}
	var status syscall.WaitStatus
	_, err = syscall.Wait4(pid, &status, 0, nil)
	return string(out), status, err
}

// shell returns a program that runs a script.
func shell(script string) Program {
	return Program{Path: "/bin/sh", Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "A=b c", "EMPTY="}}
}

func TestStart(t *testing.T) {
	s, dir := newStarter(t), t.TempDir()
	// What this process got from its own parent is nothing that the starter opened.
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, script, want string }{
		{"arguments", `echo $0 $#`, "sh 0\n"},
		{"environment", `echo "$A,${EMPTY-unset},${HOME-unset}"`, "b c,,unset\n"},
		{"directory", `pwd -P`, dir + "\n"},
		{"session", `read -r _ _ _ _ group session _ </proc/self/stat; [ $session = $$ ] && [ $group = $$ ] && echo leader`, "leader\n"},
		{"descriptors", `for fd in 0 1 2 3 4 5 6 7 8 9 20 30; do [ -e /proc/$$/fd/$fd ] && echo $fd; done; :`, "0\n1\n2\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := shell(tt.script)
			p.Dir = dir
			if got, status, err := output(s, p); err != nil || status != 0 || got != tt.want {
				t.Errorf("printed %q, ended with %#x, %v; want %q", got, status, err, tt.want)
			}
		})
	}
}

// A program begins with no signal blocked and none handled.
func TestSignals(t *testing.T) {
	p := Program{Path: "/bin/cat", Argv: []string{"cat", "/proc/self/status"}}
	got, status, err := output(newStarter(t), p)
	if err != nil || status != 0 {
		t.Fatalf("%#x, %v", status, err)
	}
	for _, want := range []string{"SigBlk:\t0000000000000000\n", "SigCgt:\t0000000000000000\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// A program has the limit of open files that it would have had from a shell, and not the
// higher one that the runtime gives this process.
func TestLimitOfOpenFiles(t *testing.T) {
	const script = "ulimit -Sn; ulimit -Hn"
	want, err := exec.Command("/bin/sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := output(newStarter(t), shell(script)); err != nil || got != string(want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}

// A limit that this process was given later is that of its programs, too. It is tried in a
// child, because it cannot be undone.
func TestLowerLimitOfOpenFiles(t *testing.T) {
	if os.Getenv(lowerLimit) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), lowerLimit+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	s := newStarter(t)
	if _, _, err := output(s, shell(":")); err != nil { // finds the limit of before
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 70, Max: 80}); err != nil {
		t.Fatal(err)
	}
	if got, _, err := output(s, shell("ulimit -Sn; ulimit -Hn")); err != nil || got != "70\n80\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// lowerLimit is the environment variable of a child of [TestLowerLimitOfOpenFiles].
const lowerLimit = "SPOOL_TEST_LOWER_LIMIT"

func TestTooManyFiles(t *testing.T) {
	p := Program{Path: "/bin/true", Argv: []string{"true"}, Files: make([]uintptr, maxFiles+1)}
	if _, _, err := newStarter(t).Start(&p); !errors.Is(err, ErrUnsupported) {
		t.Error(err)
	}
}

func TestNoFiles(t *testing.T) {
	s := newStarter(t)
	p := shell("[ ! -e /proc/$$/fd/0 ] && [ ! -e /proc/$$/fd/1 ] && [ ! -e /proc/$$/fd/2 ]")
	pid, pidfd, err := s.Start(&p)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status != 0 {
		t.Errorf("%#x, %v", status, err)
	}
}

func TestErrors(t *testing.T) {
	s := newStarter(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := []string{"x"}
	for _, tt := range []struct {
		name string
		p    Program
		want error
		text string
	}{
		{"no such program", Program{Path: "/nonexistent", Argv: argv}, unix.ENOENT, "no such file or directory"},
		{"not executable", Program{Path: file, Argv: argv}, unix.EACCES, "permission denied"},
		{"no such directory", Program{Path: "/bin/true", Argv: argv, Dir: "/nonexistent"}, unix.ENOENT, "no such file or directory"},
		{"NUL", Program{Path: "/bin/true", Argv: []string{"a\x00b"}}, unix.EINVAL, "invalid argument"},
		{"not open", Program{Path: "/bin/true", Argv: argv, Files: []uintptr{1 << 20}}, unix.EBADF, "duplicate a descriptor: bad file descriptor"},
		{"no terminal", Program{Path: "/bin/true", Argv: argv, TTY: true}, unix.EBADF, "ioctl(TIOCSCTTY): bad file descriptor"},
		{"no control group", Program{Path: "/bin/true", Argv: argv, Enter: []int{1 << 20}}, unix.EBADF, "enter control group: bad file descriptor"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pid, pidfd, err := s.Start(&tt.p)
			if pid != 0 || pidfd != -1 || !errors.Is(err, tt.want) || err.Error() != tt.text || errors.Is(err, ErrUnsupported) {
				t.Errorf("%d, %d, %v; want %v", pid, pidfd, err, tt.text)
			}
		})
	}
	if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err != unix.ECHILD {
		t.Errorf("children that failed are left: %v", err)
	}
}

// A kernel that lacks a system call makes the caller start in another way.
func TestUnsupported(t *testing.T) {
	for _, tt := range []struct {
		err  stepError
		want bool
	}{
		{stepError{stepClone, unix.ENOSYS}, true}, {stepError{stepClone, unix.EINVAL}, true}, {stepError{stepFiles, unix.ENOSYS}, true},
		{stepError{stepClone, unix.EAGAIN}, false}, {stepError{stepGroups, unix.EINVAL}, false}, {stepError{stepFiles, unix.EMFILE}, false},
	} {
		if got := errors.Is(&tt.err, ErrUnsupported); got != tt.want {
			t.Errorf("%v: %v, want %v", &tt.err, got, tt.want)
		}
	}
}

// Many programs at once, while signals arrive and the collector runs: each gets its own
// files, and starts without free seats say so.
func TestHammer(t *testing.T) {
	s := newStarter(t)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	defer signal.Stop(signals)
	stop := make(chan struct{})
	var noise sync.WaitGroup
	noise.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
				_ = unix.Kill(os.Getpid(), unix.SIGUSR1)
				_ = bytes.Repeat([]byte{1}, 1<<20)
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 2 * maxStarts {
		wg.Go(func() {
			for j := range 50 {
				want := fmt.Sprintf("%d of %d\n", j, i)
				p := shell("echo " + strings.TrimSpace(want))
				got, status, err := output(s, p)
				for errors.Is(err, ErrUnsupported) {
					got, status, err = output(s, p)
				}
				if err != nil || status != 0 || got != want {
					t.Errorf("%q, %#x, %v; want %q", got, status, err, want)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	noise.Wait()
	if len(s.seats) != maxStarts {
		t.Errorf("%d seats are free, want %d", len(s.seats), maxStarts)
	}
}
