//go:build amd64 || arm64

package pyodide

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
	"github.com/spool-run/spool/internal/seccomp/seccomptest"
)

// An interpreter must not signal other processes: not directly, and not by making
// them the owner of a descriptor.
func TestFiltersKeepSignalsInTheProcess(t *testing.T) {
	t.Run("outer", func(t *testing.T) { signalsStay(t, outerFilter()) })
	t.Run("inner", func(t *testing.T) { signalsStay(t, innerFilter()) })
}

func signalsStay(t *testing.T, filter seccomp.Program) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd := r.Fd()
	seccomptest.Try(t, filter, append(seccomptest.Signals(uintptr(os.Getppid()), fd),
		seccomptest.Call{Name: "FIOSETOWN", Want: unix.EPERM, Number: unix.SYS_IOCTL, Args: [3]uintptr{fd, 0x8901}},
		seccomptest.Call{Name: "SIOCSPGRP", Want: unix.EPERM, Number: unix.SYS_IOCTL, Args: [3]uintptr{fd, 0x8902}}))
}
