//go:build amd64 || arm64

package probe

import (
	"context"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// TrySeccomp has a child install a filter that refuses one system call, and make
// that call.
func TrySeccomp(ctx context.Context) error { return ask(command(ctx, "seccomp"), nil) }

func seccompTask([]string) (any, error) {
	call := func() unix.Errno { // asks for the execution domain
		_, _, errno := unix.RawSyscall(unix.SYS_PERSONALITY, 0xffffffff, 0, 0)
		return errno
	}
	if errno := call(); errno != 0 {
		return nil, failed(errno, "personality before the filter")
	}
	runtime.LockOSThread() // the filter is on this thread
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, failed(err, "prctl(PR_SET_NO_NEW_PRIVS)")
	}
	f := seccomp.New()
	f.On(seccomp.Errno(unix.EPERM), unix.SYS_PERSONALITY)
	if err := f.Program(seccomp.Allow).Install(); err != nil {
		return nil, failed(cause(err), "seccomp(SECCOMP_SET_MODE_FILTER)")
	}
	if call() != unix.EPERM {
		return nil, failed(errNoEffect, "a filtered call")
	}
	return nil, nil
}
