//go:build amd64 || arm64

package isolate

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/skiptest"
)

// tryVerb has a process of the tests try to leave a cell, without giving up anything
// itself.
const tryVerb = "try"

// newTestCell returns a cell that no earlier test has proven.
func newTestCell(t *testing.T, without, readable []string) *Cell {
	c := NewCell(CellOptions{Without: without, Readable: readable, Attempt: func(arg string) (string, []string) {
		return self, []string{"spool", Role, tryVerb, arg}
	}})
	t.Cleanup(c.Close)
	return c
}

// TestCellWalls checks what the wall of a cell gives by itself, by each mechanism.
// Without one every attempt succeeds that may.
func TestCellWalls(t *testing.T) {
	for mechanism, test := range map[string]struct {
		without []string
		want    Set
	}{
		Namespaces: {nil, NewSet(Writes, Protects, Reads, NoNetwork, Apart, Survives, Rootless)},
		Landlock:   {[]string{Namespaces}, NewSet(Writes, Protects, Reads, NoNetwork)},
		Filter:     {[]string{Namespaces, Landlock}, nil},
	} {
		t.Run(mechanism, func(t *testing.T) {
			p, err := newTestCell(t, test.without, nil).Proof(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if p.Mechanism != mechanism {
				skiptest.Missing(t, "the mechanism is %s", p.Mechanism)
			}
			if os.Geteuid() != 0 {
				test.want = test.want.With(Rootless)
			}
			if p.Has.String() != test.want.String() {
				t.Errorf("has %s, want %s: %v", p.Has, test.want, p.Why)
			}
		})
	}
}

// TestCellReads checks that a program in a cell reads what the cell lists, and that the
// cell is there again after its first process was killed.
func TestCellReads(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"listed", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	listed := filepath.Join(dir, "listed")
	cat, err := exec.LookPath("cat")
	if err != nil {
		t.Fatal(err)
	}
	c := newTestCell(t, nil, []string{listed, cat})
	run := func(path string) (string, int) {
		t.Helper()
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		pid, err := c.Fork(cat, []string{"cat", path}, &syscall.ProcAttr{Dir: "/", Env: []string{}, Files: []uintptr{in.Fd(), in.Fd(), in.Fd()}})
		_ = in.Close()
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		_, err = out.WriteTo(&b)
		var status unix.WaitStatus
		if _, werr := unix.Wait4(pid, &status, 0, nil); err != nil || werr != nil {
			t.Fatal(err, werr)
		}
		return b.String(), status.ExitStatus()
	}
	for range 2 {
		if text, code := run(listed); text != "listed" || code != 0 {
			t.Errorf("what is listed: %q, %d", text, code)
		}
		if text, code := run(filepath.Join(dir, "other")); code == 0 {
			t.Errorf("what is not listed: %q", text)
		}
		c.mu.Lock()
		s, ok := c.in.(*sandbox)
		c.mu.Unlock()
		if !ok {
			return
		}
		s.kill()
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}, -1); err != nil && err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// TestGrant checks that a run has what it asks for, or is refused.
func TestGrant(t *testing.T) {
	has := NewSet(Writes, Protects, Reads, Apart, Kills, Survives, Processes, Rootless, Narrow)
	why := map[Guarantee]string{NoNetwork: "tcp succeeded"}
	got, err := Grant(nil, Landlock, has, why)
	if err != nil || got.Profile != string(None) || got.Mechanism != Landlock || len(got.Guarantees) != len(has) {
		t.Errorf("without a request: %+v, %v", got, err)
	}
	if got, err = Grant(&spool.Isolation{Profile: string(Offline), Waive: []string{"N0"}}, Landlock, has, why); err != nil || got.Profile != string(Offline) {
		t.Errorf("with a waiver: %+v, %v", got, err)
	}
	var refusal *Refusal
	if _, err = Grant(&spool.Isolation{Profile: string(Offline)}, Landlock, has, why); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "N0: tcp succeeded") || !strings.Contains(refusal.Hint(), "--waive N0") {
		t.Errorf("without N0: %v", err)
	}
	if _, err = Grant(&spool.Isolation{Profile: string(ReadOnly), Mechanism: Namespaces}, Landlock, has, why); !errors.As(err, &refusal) {
		t.Errorf("another mechanism: %v", err)
	}
	if _, err = Grant(&spool.Isolation{Profile: "none such"}, Landlock, has, why); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("no such profile: %v", err)
	}
}
