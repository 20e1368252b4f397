package workspace

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/polltest"
)

// TestConflictsChangeNothing applies changes of files that another program changed.
func TestConflictsChangeNothing(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, map[string]string{"a": "a", "b": "b", "c": "c", "d/x": "x", "gone": "g", "late": "l"})
	w := m.run(t, base, `echo run >a; echo run >b; rm c; rm -r d; echo run >new; echo run >gone; echo run >late`)
	later(t, base, w, "a", "new", "d/y")
	if err := os.Remove(filepath.Join(base, "gone")); err != nil {
		t.Fatal(err)
	}
	before := tree(t, base)
	page, err := w.Apply(t.Context(), nil, false)
	changes := page.Changes
	if !errors.Is(err, spool.ErrExists) || !strings.Contains(err.Error(), "a, d/y, gone, new") {
		t.Errorf("error %v", err)
	}
	same(t, "changes", lines(changes), []string{
		"m a: changed since the run began", "m b", "d c", "d d", "d d/x", "d d/y: changed since the run began", "a gone: deleted since the run began", "m late", "m new: created since the run began",
	})
	same(t, "the base", tree(t, base), before)
	apply(t, w, "b", "late")
	if b, err := os.ReadFile(filepath.Join(base, "b")); err != nil || string(b) != "run\n" {
		t.Errorf("b has %q, %v", b, err)
	}
	if _, err := os.Lstat(filepath.Join(base, "c")); err != nil {
		t.Errorf("a path that was not named was applied: %v", err)
	}
	for _, path := range []string{"nothing", "../a", "/etc/passwd", ""} {
		if _, err := w.Apply(t.Context(), []string{path}, false); !errors.Is(err, spool.ErrNotFound) && !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("path %q: %v", path, err)
		}
	}
}

// later changes files of a base, so that their times are later than the beginning of
// a workspace.
func later(t *testing.T, base string, w *Workspace, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(base, name)
		polltest.Until(t, "a later time, of a clock with steps", func() bool {
			if err := os.WriteFile(path, []byte("another program"), 0o644); err != nil {
				t.Fatal(err)
			}
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil {
				t.Fatal(err)
			}
			return st.Ctim.Nano() > w.state.Began
		})
	}
}

// TestRunsOnOneBase has two runs change one directory, and applies both.
func TestRunsOnOneBase(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, map[string]string{"a": "a", "b": "b", "both": "x"})
	first := m.run(t, base, `echo 1 >a; echo 1 >new1; echo 1 >both`)
	second := m.run(t, base, `echo 2 >b; echo 2 >new2; echo 2 >both`)
	same(t, "changes of the second", changesOf(t, second), []string{"m b", "m both", "a new2"})
	apply(t, first)
	if _, err := second.Apply(t.Context(), nil, false); !errors.Is(err, spool.ErrExists) || !strings.Contains(err.Error(), "both") {
		t.Errorf("error %v, want a conflict", err)
	}
	apply(t, second, "b", "new2")
	for name, want := range map[string]string{"a": "1\n", "b": "2\n", "both": "1\n", "new1": "1\n", "new2": "2\n"} {
		if b, err := os.ReadFile(filepath.Join(base, name)); err != nil || string(b) != want {
			t.Errorf("%s has %q, %v", name, b, err)
		}
	}
}

// TestLinksOfTheBaseLeadNowhere replaces a directory of the base by a symbolic link
// after the run: nothing is written through it.
func TestLinksOfTheBaseLeadNowhere(t *testing.T) {
	m, base, outside := newMaker(t), tempDir(t), tempDir(t)
	fill(t, base, map[string]string{"dir/a": "a"})
	w := m.run(t, base, `echo run >dir/a; echo run >dir/b`)
	if err := errors.Join(os.RemoveAll(filepath.Join(base, "dir")), os.Symlink(outside, filepath.Join(base, "dir"))); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Apply(t.Context(), nil, false); !errors.Is(err, spool.ErrExists) {
		t.Errorf("error %v, want a conflict", err)
	}
	if _, err := w.Apply(t.Context(), []string{"dir/b"}, false); !errors.Is(err, spool.ErrExists) {
		t.Errorf("error %v, want a conflict", err)
	}
	if left := tree(t, outside); len(left) != 1 {
		t.Errorf("it wrote outside: %q", left)
	}
	// A link that the run made is applied as a link.
	w = m.run(t, tempDir(t), "ln -s "+outside+" out; echo x >out/written || true")
	if got := changesOf(t, w); len(got) != 1 || got[0] != "a out" {
		t.Errorf("changes %q", got)
	}
}

// TestInterruptedApply ends an apply at several steps, as the death of its process does:
// the next command completes it.
func TestInterruptedApply(t *testing.T) {
	m := newMaker(t)
	interrupted := errors.New("interrupted")
	for step := 1; ; step += 4 {
		base, plain := tempDir(t), tempDir(t)
		fill(t, base, sample)
		fill(t, plain, sample)
		w := m.run(t, base, everyChange)
		disable := failpoint.Enable("workspace.commit", step, failpoint.Fail(interrupted))
		_, err := w.Apply(t.Context(), nil, false)
		disable()
		if err == nil {
			if step < 10 {
				t.Errorf("there are only %d steps", step)
			}
			return
		}
		if !errors.Is(err, interrupted) {
			t.Fatal(err)
		}
		same(t, fmt.Sprintf("changes after step %d", step), changesOf(t, w), []string{"a pipe"})
		left, err := filepath.Glob(filepath.Join(base, ".spool-*"))
		if err != nil || len(left) > 0 {
			t.Errorf("step %d left %q, %v", step, left, err)
		}
		cmd := exec.Command("sh", "-ec", everyChange+"; rm pipe")
		cmd.Dir = plain
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		same(t, fmt.Sprintf("the base after step %d", step), tree(t, base), tree(t, plain))
	}
}

// TestFailedApplyIsUndone has one operation of an apply fail, each in turn: the base
// is as it was, and the changes can be applied after that.
func TestFailedApplyIsUndone(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, sample)
	w := m.run(t, base, everyChange)
	before := tree(t, base)
	for step := 1; ; step++ {
		disable := failpoint.Enable("workspace.rename", step, failpoint.Fail(unix.EIO))
		_, err := w.Apply(t.Context(), nil, false)
		disable()
		if err == nil {
			if step < 10 {
				t.Errorf("there are only %d steps", step)
			}
			break
		}
		if !errors.Is(err, unix.EIO) {
			t.Fatalf("step %d: %v", step, err)
		}
		same(t, fmt.Sprintf("the base after step %d", step), tree(t, base), before)
	}
	same(t, "changes after apply", changesOf(t, w), []string{"a pipe"})
}
