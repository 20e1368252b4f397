package cli

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGrowPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	size := func() int {
		t.Helper()
		n, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if growPipe(w); size() != outputPipe {
		t.Errorf("the pipe has %d bytes, want %d", size(), outputPipe)
	}
	const larger = 2 * outputPipe
	if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, larger); err != nil {
		t.Fatal(err)
	}
	if growPipe(w); size() != larger {
		t.Errorf("a larger pipe has %d bytes now", size())
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	growPipe(f) // no pipe: nothing to do
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
