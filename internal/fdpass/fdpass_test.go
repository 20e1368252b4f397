//go:build unix

package fdpass_test

import (
	"errors"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
)

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

func TestSendAndReceive(t *testing.T) {
	a, b := pair(t)
	defer unix.Close(b)
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := fdpass.Send(a, []byte{0}, int(in.Fd()), int(out.Fd())); err != nil {
		t.Fatal(err)
	}
	fds, err := fdpass.Receive(b, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	if _, err := unix.Write(fds[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	unix.Close(fds[1])
	out.Close()
	if got, err := io.ReadAll(in); string(got) != "x" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}

	if err := fdpass.Send(a, []byte{0}, int(in.Fd())); err != nil {
		t.Fatal(err)
	}
	if _, err := fdpass.Receive(b, 2); !errors.Is(err, fdpass.ErrNone) {
		t.Errorf("one descriptor instead of two: %v", err)
	}
	if _, err := unix.Write(a, []byte{0}); err != nil {
		t.Fatal(err)
	}
	if _, err := fdpass.Receive(b, 1); !errors.Is(err, fdpass.ErrNone) {
		t.Errorf("no descriptor: %v", err)
	}
	unix.Close(a)
	if _, err := fdpass.Receive(b, 1); !errors.Is(err, io.EOF) {
		t.Errorf("closed: %v", err)
	}
}
