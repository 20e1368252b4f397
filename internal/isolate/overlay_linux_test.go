//go:build amd64 || arm64

package isolate

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/gvisortest"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestOverlayWalls changes overlays behind every wall of this machine, and looks at
// the base and at what was recorded.
func TestOverlayWalls(t *testing.T) {
	gvisortest.Use(t)
	for _, w := range append(walls(), wall{mechanism: viewName}) {
		if w.mechanism == Landlock {
			continue
		}
		t.Run(w.name(), func(t *testing.T) {
			if err := w.tryOverlay(resolved(t, t.TempDir())); err != nil {
				skiptest.Missing(t, "%v", err)
			}
		})
	}
}

// TestOverlayUnprivileged does the same as a user without any rights.
func TestOverlayUnprivileged(t *testing.T) {
	if !unprivileged(t) {
		return
	}
	for _, w := range []wall{{mechanism: Namespaces}, {mechanism: viewName}} {
		if err := w.tryOverlay(resolved(t, t.TempDir())); err != nil {
			skiptest.Missing(t, "%s: %v", w.name(), err)
		}
	}
}

func resolved(t *testing.T, dir string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// newOverlay makes the directories of an overlay.
func newOverlay(t testing.TB, base string) *Overlay {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	o := &Overlay{Base: base, Dir: filepath.Join(dir, "run")}
	t.Cleanup(func() {
		if err := removeTest(o.Dir); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{UpperDir, WorkDir} {
		if err := os.MkdirAll(filepath.Join(o.Dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// attributes are those of a process without input and output.
func attributes(t testing.TB) *syscall.ProcAttr {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return &syscall.ProcAttr{Env: []string{"PATH=/usr/bin:/bin"}, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}
}

// shell runs a command line with a lease and returns its exit code.
func shell(t testing.TB, l *Lease, dir, line string) int {
	t.Helper()
	return run(t, l.Fork, dir, line)
}

// run runs a command line that a function forks and returns its exit code.
func run(t testing.TB, fork forkFunc, dir, line string) int {
	t.Helper()
	attr := attributes(t)
	attr.Dir = dir
	pid, err := fork("/bin/sh", []string{"sh", "-c", line}, attr)
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		t.Fatal(err)
	}
	return status.ExitStatus()
}

// TestOverlayIsWhatIsWritable isolates a run with an overlay: it changes the overlay
// and neither the base, nor protected paths in it, nor anything else.
func TestOverlayIsWhatIsWritable(t *testing.T) {
	l := newLauncher(t, launch.TreeAuto)
	m := New(l)
	defer m.Close()
	base := resolved(t, t.TempDir())
	for _, dir := range []string{"a/.git", "b"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outside := resolved(t, t.TempDir())
	o := newOverlay(t, base)
	lease, err := m.prepareOverlay(&spool.Isolation{Profile: string(WorkspaceWrite), Protected: []string{"a/.git"}}, base, 64, "", o, nil)
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	defer lease.Release()
	if code := shell(t, lease, base, "echo x >b/x && echo y >a/y && ! echo z >a/.git/z && ! mv a c && ! echo w >"+outside+"/w"); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for path, want := range map[string]bool{
		filepath.Join(base, "b/x"): false, filepath.Join(base, "a/y"): false, filepath.Join(base, "a/.git/z"): false, filepath.Join(outside, "w"): false,
		filepath.Join(o.Dir, UpperDir, "b/x"): true, filepath.Join(o.Dir, UpperDir, "a/y"): true,
	} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s: %v, want it to exist: %t", path, err, want)
		}
	}
	if i := lease.Isolation(); i.Mechanism != Namespaces {
		t.Errorf("isolation %+v", i)
	}
}

// TestOverlayIsSeenByItsRunOnly looks for the mount of an overlay outside, while its
// run lives.
func TestOverlayIsSeenByItsRunOnly(t *testing.T) {
	m := New(newLauncher(t, launch.TreeAuto))
	defer m.Close()
	base := resolved(t, t.TempDir())
	lease, err := m.prepareOverlay(nil, base, 64, "", newOverlay(t, base), nil)
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	defer lease.Release()
	if code := shell(t, lease, base, "grep -q '"+base+" overlay' /proc/self/mounts"); code != 0 {
		t.Errorf("the run does not see its overlay: exit code %d", code)
	}
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), base) {
		t.Errorf("the overlay is mounted outside: %s", b)
	}
}

// TestOverlayRefusals asks for overlays that would not show what is there.
func TestOverlayRefusals(t *testing.T) {
	m := New(newLauncher(t, launch.TreeAuto))
	defer m.Close()
	base := resolved(t, t.TempDir())
	inBase := &Overlay{Base: base, Dir: filepath.Join(base, "state")}
	for text, o := range map[string]*Overlay{
		"cannot be a workspace":        {Base: "/", Dir: base},
		"is in the workspace":          inBase,
		"another file system":          {Base: "/dev", Dir: base},
		"leaves nothing to change":     newOverlay(t, base),
		"in the workspace, which is w": newOverlay(t, base),
	} {
		request := &spool.Isolation{Profile: string(ReadOnly)}
		if strings.HasPrefix(text, "in the") {
			if err := os.Mkdir(filepath.Join(base, "sub"), 0o700); err != nil {
				t.Fatal(err)
			}
			request = &spool.Isolation{Profile: string(WorkspaceWrite), Writable: []string{"sub"}}
		}
		if _, err := m.prepareOverlay(request, base, 64, "", o, nil); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v, want an error with %q", err, text)
		}
	}
}

// BenchmarkOverlay makes overlays of a directory with 10,000 files.
func BenchmarkOverlay(b *testing.B) {
	base, err := filepath.EvalSymlinks(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		dir := filepath.Join(base, strings.Repeat("d", i+1))
		if err := os.Mkdir(dir, 0o700); err != nil {
			b.Fatal(err)
		}
		for j := range 100 {
			if err := os.WriteFile(filepath.Join(dir, strings.Repeat("f", j+1)), []byte("text\n"), 0o600); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			o := newOverlay(b, base)
			b.StartTimer()
			s, err := newView(o, nil)
			if err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			s.close()
			b.StartTimer()
		}
	})
}
