//go:build amd64 || arm64

package wasipy

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
	"github.com/spool-run/spool/internal/skiptest"
)

// A worker must not signal other processes: not directly, and not by making
// them the owner of a descriptor.
func TestFilterKeepsSignalsInTheProcess(t *testing.T) {
	if !seccomp.Supported() {
		skiptest.Missing(t, "this kernel has no filters")
	}
	other, pid := uintptr(os.Getppid()), uintptr(os.Getpid())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := r.Fd()
	type result struct {
		name      string
		got, want unix.Errno
	}
	results := make(chan []result)
	go func() {
		runtime.LockOSThread() // never unlocked, so the filtered thread ends with the goroutine
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			results <- []result{{"no_new_privs", err.(unix.Errno), 0}}
			return
		}
		if err := filter().Install(); err != nil {
			t.Error(err)
			results <- nil
			return
		}
		var list []result
		try := func(name string, want unix.Errno, call, a, b, c uintptr) {
			_, _, errno := unix.RawSyscall(call, a, b, c)
			list = append(list, result{name, errno, want})
		}
		try("tgkill of another process", unix.EPERM, unix.SYS_TGKILL, other, other, 0)
		try("tgkill of this process", 0, unix.SYS_TGKILL, pid, pid, 0)
		try("kill", unix.EPERM, unix.SYS_KILL, other, 0, 0)
		try("tkill", unix.EPERM, unix.SYS_TKILL, other, 0, 0)
		for name, command := range map[string]uintptr{
			"F_SETOWN": unix.F_SETOWN, "F_SETOWN_EX": unix.F_SETOWN_EX, "F_SETSIG": unix.F_SETSIG, "F_NOTIFY": unix.F_NOTIFY, "F_SETLEASE": unix.F_SETLEASE,
		} {
			try(name, unix.EPERM, unix.SYS_FCNTL, fd, command, 0)
		}
		try("F_GETFL", 0, unix.SYS_FCNTL, fd, unix.F_GETFL, 0)
		try("F_GETFD", 0, unix.SYS_FCNTL, fd, unix.F_GETFD, 0)
		results <- list
	}()
	for _, r := range <-results {
		if r.got != r.want {
			t.Errorf("%s: %v, want %v", r.name, r.got, r.want)
		}
	}
}
