//go:build amd64 || arm64

package wasipy

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp/seccomptest"
)

// A worker must not signal other processes: not directly, and not by making
// them the owner of a descriptor.
func TestFilterKeepsSignalsInTheProcess(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pid := uintptr(os.Getpid())
	seccomptest.Try(t, filter(), append(seccomptest.Signals(uintptr(os.Getppid()), r.Fd()),
		seccomptest.Call{Name: "tgkill of this process", Number: unix.SYS_TGKILL, Args: [3]uintptr{pid, pid}}))
}
