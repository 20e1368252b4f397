package execserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// newTestView returns a view that may only write below dir.
func newTestView(t *testing.T, dir string) tree {
	t.Helper()
	v, err := treeFor(restrict(allow(dir, "write")), true)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := v.(*view); !ok {
		t.Fatalf("the file system is a %T", v)
	}
	return v
}

// TestViewHoldsAgainstRaces acts on paths of which another thread replaces an
// element by a link that leads out of the sandbox, and back.
func TestViewHoldsAgainstRaces(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inside, outside := filepath.Join(base, "in"), filepath.Join(base, "out")
	for _, dir := range []string{filepath.Join(inside, "real"), filepath.Join(outside, "keep")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{filepath.Join(inside, "real/f"): "inside", filepath.Join(outside, "f"): "secret", filepath.Join(outside, "keep/f"): "kept"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(inside, "link")); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	v := newTestView(t, inside)

	var stop atomic.Bool
	done := make(chan error)
	go func() {
		var err error
		for !stop.Load() && err == nil {
			err = unix.Renameat2(unix.AT_FDCWD, filepath.Join(inside, "real"), unix.AT_FDCWD, filepath.Join(inside, "link"), unix.RENAME_EXCHANGE)
			runtime.Gosched()
		}
		done <- err
	}()
	at := func(elements ...string) string {
		return filepath.Join(append([]string{inside, "real"}, elements...)...)
	}
	wrote := 0
	for i := range 2000 {
		if f, err := v.open(at("f"), os.O_RDONLY, 0, followLinks); err == nil {
			b, err := io.ReadAll(f)
			f.Close()
			if err != nil || string(b) == "secret" {
				t.Fatalf("read %q, %v", b, err)
			}
		}
		name := fmt.Sprintf("n%d", i%10)
		if f, err := v.open(at(name), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666, followLinks); err == nil {
			wrote++
			f.Close()
		}
		_ = v.mkdir(at("d", name), true, followLinks) // must only not reach outside
		_ = v.symlink("x", at("l"+name))
		_ = v.remove(at("keep"), true, followLinks)
		_ = v.remove(at("f"+name), false, followLinks)
	}
	stop.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadDir(outside)
	if err != nil {
		t.Fatal(err)
	}
	if len(after) != len(before) {
		t.Errorf("outside are %v, were %v", after, before)
	}
	for name, want := range map[string]string{"f": "secret", "keep/f": "kept"} {
		if b, err := os.ReadFile(filepath.Join(outside, name)); string(b) != want {
			t.Errorf("%s is %q, %v", name, b, err)
		}
	}
	if wrote == 0 {
		t.Error("no write was allowed, so that the test shows nothing")
	}
}

// TestViewHidesProcesses checks that the files of the server's own process are
// not reachable, neither as files nor as links to others.
func TestViewHidesProcesses(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(base, "secret")
	if err := os.WriteFile(secret, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(secret)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := filepath.Join(base, "in")
	if err := os.Mkdir(in, 0o755); err != nil {
		t.Fatal(err)
	}
	fd := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	for name, target := range map[string]string{"fd": fd, "root": "/proc/self/root", "up": "../secret"} {
		if err := os.Symlink(target, filepath.Join(in, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, entries := range []string{
		allow(in, "write"),
		allow(in, "write") + "," + `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},` + allow(secret, "deny"),
	} {
		v, err := treeFor(restrict(entries), false)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{
			fd, "/proc/self/environ", fmt.Sprintf("/proc/%d/environ", os.Getpid()), "/proc/self/root" + secret, "/proc/thread-self/root" + secret,
			filepath.Join(in, "fd"), filepath.Join(in, "root", secret), filepath.Join(in, "up"), secret,
		} {
			f, err := v.open(path, os.O_RDONLY, 0, followLinks)
			if err == nil {
				f.Close()
				t.Errorf("%s can be read", path)
			} else if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EACCES) {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// TestViewKeepsWhatItCannotRemove checks that a removal which the rules refuse
// removes nothing.
func TestViewKeepsWhatItCannotRemove(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/f", "a/keep/f", "b/.git/config", "b/f"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	v, err := treeFor(restrict(allow(dir, "write")+","+allow(filepath.Join(dir, "b"), "write")+","+allow(filepath.Join(dir, "a/keep"), "read")), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", ""} {
		if err := v.remove(filepath.Join(dir, name), true, followLinks); !errors.Is(err, unix.EBUSY) {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	for _, name := range []string{"a/f", "a/keep/f", "b/.git/config", "b/f"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// TestViewLeavesNoDescriptors checks that lookups close what they open, whatever
// they find.
func TestViewLeavesNoDescriptors(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"abs": dir, "rel": "sub/..", "loop": "loop", "out": "/"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "f"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	v := newTestView(t, dir)
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := count()
	for range 50 {
		for _, name := range []string{"f", "abs/f", "rel/f", "loop", "out/etc/passwd", "none/x", "f/x", "sub", "abs/abs/abs/sub/../rel/none", "out" + dir + "/f"} {
			for _, l := range []links{followLinks, keepLast, refuseLinks} {
				_, _ = v.stat(filepath.Join(dir, name), l)
			}
			_ = v.mkdir(filepath.Join(dir, name), true, followLinks)
		}
	}
	// Other goroutines of the test may hold a few for a moment.
	if after := count(); after > before+20 {
		t.Errorf("%d descriptors are open, %d were before", after, before)
	}
}
