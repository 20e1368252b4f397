//go:build amd64 || arm64

package isolate

import (
	"bytes"
	"io"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/polltest"
)

// TestSpares makes a sandbox with a first process that was ready, and with another one
// if the mounts of the machine have changed since.
func TestSpares(t *testing.T) {
	m := New(newLauncher(t, launch.TreeAuto))
	defer m.Close()
	prepare := func() *sandbox {
		t.Helper()
		l, err := m.Prepare(&spool.Isolation{Profile: string(Offline)}, resolved(t, t.TempDir()), 64, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(l.Release)
		in := l.in
		if l.shared != nil {
			in = l.shared.enclosure
		}
		s, ok := in.(*sandbox)
		if !ok {
			t.Fatalf("the run is in a %T", in)
		}
		return s
	}
	s := prepare()
	ready := func(change func(*first)) int {
		t.Helper()
		p := m.spares.pool(s.flags)
		p.Wait()
		f, ok := p.Take()
		if !ok {
			t.Fatal("none is ready")
		}
		if change != nil {
			change(f)
		}
		p.Give(f)
		return f.pid
	}
	for try := 0; ; try++ {
		changed := watchMounts(t)
		var had []byte
		want := ready(func(f *first) { had = f.mounts })
		got := prepare().pid
		if got == want {
			break
		}
		if !changed(had) || try == 100 {
			t.Fatalf("the first process is %d, want %d", got, want)
		}
	}
	stale := ready(func(f *first) { f.mounts = []byte("others") })
	if got := prepare().pid; got == stale {
		t.Error("a first process with other mounts was used")
	}
	left := ready(nil)
	m.spares.close()
	polltest.Until(t, "the end of the one that was ready", func() bool { return unix.Kill(left, 0) == unix.ESRCH })
	prepare()
	if m.spares.pool(s.flags) != nil {
		t.Error("there is a pool after the end")
	}
}

// watchMounts returns a function that reports whether the mounts of the machine, which other
// programs change, are or were others than these at any time from now on.
func watchMounts(t *testing.T) (changed func(had []byte) bool) {
	t.Helper()
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // it is only read
	now, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return func(had []byte) bool {
		poll := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(poll, 0); err != nil {
			t.Fatal(err)
		}
		return poll[0].Revents != 0 || !bytes.Equal(had, now)
	}
}
