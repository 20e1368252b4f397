//go:build amd64 || arm64

// Package seccomptest takes system calls away from what tests run.
package seccomptest

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
	"github.com/spool-run/spool/internal/skiptest"
)

// Need ends a test that needs filters, on a kernel without them.
func Need(tb testing.TB) {
	tb.Helper()
	if !seccomp.Supported() {
		skiptest.Missing(tb, "this kernel has no filters")
	}
}

// Run runs a function on a thread of its own under a filter. It returns an error
// if the filter cannot be installed.
func Run(p seccomp.Program, f func()) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = p.Install()
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// Start starts a command under a filter.
func Start(p seccomp.Program, cmd *exec.Cmd) error {
	var started error
	if err := Run(p, func() { started = cmd.Start() }); err != nil { // it forks the thread
		return err
	}
	return started
}

// Call is a system call that a filter allows or refuses.
type Call struct {
	Name   string
	Want   unix.Errno
	Number uintptr
	Args   [3]uintptr
}

// Signals returns calls that signal another process, directly or as the owner of
// a descriptor, and harmless ones of the same kind.
func Signals(other, fd uintptr) []Call {
	calls := []Call{
		{"tgkill of another process", unix.EPERM, unix.SYS_TGKILL, [3]uintptr{other, other}},
		{"kill", unix.EPERM, unix.SYS_KILL, [3]uintptr{other}},
		{"tkill", unix.EPERM, unix.SYS_TKILL, [3]uintptr{other}},
		{"F_GETFL", 0, unix.SYS_FCNTL, [3]uintptr{fd, unix.F_GETFL}},
		{"F_GETFD", 0, unix.SYS_FCNTL, [3]uintptr{fd, unix.F_GETFD}},
	}
	for name, command := range map[string]uintptr{
		"F_SETOWN": unix.F_SETOWN, "F_SETOWN_EX": unix.F_SETOWN_EX, "F_SETSIG": unix.F_SETSIG, "F_NOTIFY": unix.F_NOTIFY, "F_SETLEASE": unix.F_SETLEASE,
	} {
		calls = append(calls, Call{name, unix.EPERM, unix.SYS_FCNTL, [3]uintptr{fd, command}})
	}
	return calls
}

// Try makes calls under a filter and fails the test unless each ends as wanted.
func Try(t *testing.T, p seccomp.Program, calls []Call) {
	t.Helper()
	Need(t)
	got := make([]unix.Errno, len(calls))
	if err := Run(p, func() {
		for i, c := range calls {
			_, _, got[i] = unix.RawSyscall(c.Number, c.Args[0], c.Args[1], c.Args[2])
		}
	}); err != nil {
		t.Fatal(err)
	}
	for i, c := range calls {
		if got[i] != c.Want {
			t.Errorf("%s: %v, want %v", c.Name, got[i], c.Want)
		}
	}
}
