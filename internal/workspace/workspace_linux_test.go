package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// tempDir returns a directory without symbolic links in its path.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fill makes files below a directory: names that end with / are directories.
func fill(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		parent := filepath.Dir(path)
		if strings.HasSuffix(name, "/") {
			parent = path
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			continue
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// tree describes everything below a directory.
func tree(t testing.TB, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%q %v", strings.TrimPrefix(path, dir), fi.Mode())
		switch {
		case fi.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q", b)
		case fi.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		list = append(list, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// maker makes workspaces in which scripts run.
type maker struct {
	state     string
	sandboxes *isolate.Sandboxes
	n         int
}

func newMaker(t testing.TB) *maker {
	t.Helper()
	l, err := launch.New(launch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{state: tempDir(t), sandboxes: isolate.New(l)}
	t.Cleanup(func() {
		m.sandboxes.Close()
		if err := errors.Join(l.Close(), Remove(filepath.Join(m.state, "workspaces"))); err != nil {
			t.Error(err)
		}
	})
	return m
}

// make makes a workspace of a base.
func (m *maker) make(t testing.TB, base, kind string) *Workspace {
	t.Helper()
	m.n++
	w, err := Create(filepath.Join(m.state, "workspaces", fmt.Sprint(m.n)), base, kind)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// run runs a script in a workspace, and records its end.
func (m *maker) run(t testing.TB, base, script string) *Workspace {
	t.Helper()
	w := m.make(t, base, Overlay)
	m.exec(t, w, script)
	if _, err := w.End(); err != nil {
		t.Fatal(err)
	}
	return w
}

// exec runs a script in a workspace, as one process of its run.
func (m *maker) exec(t testing.TB, w *Workspace, script string) {
	t.Helper()
	base := w.Base()
	lease, err := m.sandboxes.StartOverlay(new(spool.Spec), 0, &launch.Command{Dir: base}, &isolate.Overlay{Base: base, Dir: w.dir})
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	defer lease.Release()
	out, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	pid, err := lease.Fork("/bin/sh", []string{"sh", "-ec", script}, &syscall.ProcAttr{Env: []string{"PATH=/usr/bin:/bin"}, Dir: base, Files: []uintptr{out.Fd(), out.Fd(), out.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}})
	if err != nil {
		t.Fatal(err)
	}
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if err != nil || status != 0 {
		text, _ := os.ReadFile(out.Name())
		t.Fatalf("the script ended with %v, %#x: %s", err, status, text)
	}
}

// lines are changes as text.
func lines(changes []spool.Change) []string {
	var list []string
	for _, c := range changes {
		line := c.Op[:1] + " " + c.Path
		if c.OldMode != "" && c.Mode != "" && c.OldMode != c.Mode {
			line += " " + c.OldMode + ">" + c.Mode
		}
		if c.OldType != "" {
			line += " " + c.OldType + ">" + c.Type
		}
		if c.Conflict != "" {
			line += ": " + c.Conflict
		}
		list = append(list, line)
	}
	return list
}

func changesOf(t testing.TB, w *Workspace) []string {
	t.Helper()
	changes, err := w.Changes(t.Context(), spool.ChangeQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return lines(changes.Changes)
}

func apply(t testing.TB, w *Workspace, paths ...string) {
	t.Helper()
	if _, err := w.Apply(t.Context(), paths, false); err != nil {
		t.Fatal(err)
	}
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

var sample = map[string]string{
	"a": "one\n", "b": "two\n", "d/x": "x\n", "d/sub/y": "y\n", "e/z": "z\n", "link": "-> a", "dirlink": "-> d", "f": "same\n", "tofile/k": "k\n", "todir": "t\n",
}

const everyChange = `
echo more >>a; chmod 700 b; rm -r d; mkdir d; echo n >d/n; rm link; ln -s b link; mkdir -p new/deep; printf 'bin\0' >new/deep/bin
mv e/z e/w; touch f; rm -r tofile; echo file >tofile; rm todir; mkdir todir; echo in >todir/in; chmod 750 e; ln a hard
: >"$(printf 'odd\n\377')"; mkfifo pipe`

// TestChangesOfEveryKind lists changes of every kind, and applies them.
func TestChangesOfEveryKind(t *testing.T) {
	m, base, plain := newMaker(t), tempDir(t), tempDir(t)
	fill(t, base, sample)
	fill(t, plain, sample)
	before := tree(t, base)
	w := m.run(t, base, everyChange)
	same(t, "the base", tree(t, base), before)
	same(t, "changes", changesOf(t, w), []string{
		"m a", "m b 0644>0700", "a d/n", "d d/sub", "d d/sub/y", "d d/x", "m e 0755>0750", "a e/w", "d e/z", "a hard", "m link", "a new", "a new/deep", "a new/deep/bin",
		"a odd\n\xff", "a pipe", "m todir 0644>0755 file>directory", "a todir/in", "m tofile 0755>0644 directory>file", "d tofile/k",
	})
	apply(t, w)
	same(t, "changes after apply", changesOf(t, w), []string{"a pipe"})
	cmd := exec.Command("sh", "-ec", everyChange+"; rm pipe")
	cmd.Dir = plain
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	same(t, "the base after apply", tree(t, base), tree(t, plain))
	var a, hard unix.Stat_t
	if err := errors.Join(unix.Stat(filepath.Join(base, "a"), &a), unix.Stat(filepath.Join(base, "hard"), &hard)); err != nil || a.Ino != hard.Ino {
		t.Errorf("the two names are not those of one file: %v", err)
	}
	apply(t, w) // has nothing left to do
}

// TestPatch compares unified diffs, and has them applied by patch.
func TestPatch(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, map[string]string{"text": "1\n2\n3\n", "gone": "g\n", "binary": "\x00a", "link": "-> a"})
	w := m.run(t, base, `printf '1\ntwo\n3\n' >text; rm gone; printf '\0b' >binary; echo new >"a b"; chmod +x "a b"; rm link; ln -s b link; mkdir dir`)
	page, err := w.Changes(t.Context(), spool.ChangeQuery{Patch: true})
	changes := page.Changes
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, c := range changes {
		if c.Binary != (c.Path == "binary") {
			t.Errorf("%s is binary: %t", c.Path, c.Binary)
		}
		all.WriteString(c.Patch)
	}
	want := "diff --git a/a b b/a b\nnew file mode 100755\n--- /dev/null\n+++ b/a b\n@@ -0,0 +1,1 @@\n+new\n" +
		"diff --git a/binary b/binary\nBinary files a/binary and b/binary differ\n" +
		"diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-g\n" +
		"diff --git a/link b/link\n--- a/link\n+++ b/link\n@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n" +
		"diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n"
	if all.String() != want {
		t.Errorf("patch:\n%s\nwant:\n%s", all.String(), want)
	}
}

// TestLargeFilesHaveNoPatch changes a file that is too large to show.
func TestLargeFilesHaveNoPatch(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	w := m.run(t, base, fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x >large", MaxPatchFile+1))
	page, err := w.Changes(t.Context(), spool.ChangeQuery{Patch: true})
	changes := page.Changes
	if err != nil || len(changes) != 1 || !changes[0].Binary {
		t.Errorf("changes %v, %v", changes, err)
	}
}

// TestInterruptedStage ends an apply before its changes are complete: the next
// command forgets it.
func TestInterruptedStage(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, map[string]string{"a": "a"})
	w := m.run(t, base, "echo run >a")
	before := tree(t, base)
	if err := w.savePlan(&plan{Stage: ".spool-apply-test", Phase: phaseStage}); err != nil {
		t.Fatal(err)
	}
	fill(t, base, map[string]string{".spool-apply-test/0": "half"})
	same(t, "changes", changesOf(t, w), []string{"m a"})
	same(t, "the base", tree(t, base), before)
}

// TestDiscard deletes changes.
func TestDiscard(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, map[string]string{"a": "a"})
	w := m.run(t, base, "echo run >a; mkdir closed; echo x >closed/x; chmod 0 closed")
	if err := w.Discard(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(w.dir, upperDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the changes are there: %v", err)
	}
	w, err := Open(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Changes(t.Context(), spool.ChangeQuery{}); !errors.Is(err, ErrDiscarded) {
		t.Errorf("changes: %v", err)
	}
	if _, err := w.Apply(t.Context(), nil, false); !errors.Is(err, ErrDiscarded) {
		t.Errorf("apply: %v", err)
	}
}

// TestNotes has several processes of one run work in its workspace, one after the
// other: each sees what the ones before it changed, and a note after each says what is
// new, also if a file has the same size. The end repeats no note.
func TestNotes(t *testing.T) {
	m := newMaker(t)
	for _, kind := range []string{Overlay, Snapshot} {
		t.Run(kind, func(t *testing.T) {
			base := tempDir(t)
			fill(t, base, map[string]string{"a": "one", "b": "two"})
			w := m.make(t, base, kind)
			step := func(script, want string) {
				t.Helper()
				if kind == Overlay {
					m.exec(t, w, script)
				} else {
					cmd := exec.Command("sh", "-ec", script)
					cmd.Dir = base
					if out, err := cmd.CombinedOutput(); err != nil {
						t.Fatalf("%v: %s", err, out)
					}
				}
				if want == "end" {
					if s, err := w.End(); s != nil || err != nil {
						t.Errorf("the end says %+v, %v", s, err)
					}
					return
				}
				s, err := w.Note()
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				if s != nil {
					got = s.Text()
				}
				if got != want {
					t.Errorf("after %q the note is %q, want %q", script, got, want)
				}
			}
			step("true", "")
			step("echo x > new; rm b", "the run changed its workspace: 1 added, 0 modified, 1 deleted")
			step("test ! -e b; cat new", "")
			step("echo y > other; mv other new", "the run changed its workspace: 1 added, 0 modified, 1 deleted")
			step("test y = $(cat new); rm new; echo two > b.new; mv b.new c; echo one > a", "the run changed its workspace: 1 added, 1 modified, 1 deleted")
			step("true", "end")
			same(t, "changes", changesOf(t, w), []string{"m a", "d b", "a c"})
		})
	}
}

// TestSnapshotIsBounded refuses a snapshot of too many files.
func TestSnapshotIsBounded(t *testing.T) {
	dir := tempDir(t)
	fill(t, dir, map[string]string{"a": "a", "b": "b"})
	fd, err := openDir(unix.AT_FDCWD, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	n := MaxSnapshot - 1
	if err := scan(fd, "", 0, &n, func(seen) error { return nil }); !errors.Is(err, errTooMany) {
		t.Errorf("error %v", err)
	}
}

// TestNamesOfASummaryAreBounded summarizes many changes.
func TestNamesOfASummaryAreBounded(t *testing.T) {
	s := summarize(Overlay, 0, make([]ending, MaxNames+7))
	if len(s.Changes) != MaxNames || s.More != 7 {
		t.Errorf("%d changes and %d more", len(s.Changes), s.More)
	}
}

// TestRandomChanges applies random changes, and compares the base with a directory
// in which the same script ran.
func TestRandomChanges(t *testing.T) {
	m := newMaker(t)
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		base, plain := tempDir(t), tempDir(t)
		names := []string{"a", "b", "c"}
		path := func() string {
			p := names[r.IntN(3)]
			for range r.IntN(3) {
				p += "/" + names[r.IntN(3)]
			}
			return p
		}
		script := func(n int) string {
			var b strings.Builder
			for i := range n {
				p, q := path(), path()
				switch r.IntN(8) {
				case 0, 1, 2:
					fmt.Fprintf(&b, "{ mkdir -p $(dirname %s); echo %d >%[1]s; } 2>/dev/null || true\n", p, i)
				case 3:
					fmt.Fprintf(&b, "rm -rf %s 2>/dev/null || true\n", p)
				case 4:
					fmt.Fprintf(&b, "mv -T %s %s 2>/dev/null || true\n", p, q)
				case 5:
					fmt.Fprintf(&b, "mkdir -p %s 2>/dev/null || true\n", p)
				case 6:
					fmt.Fprintf(&b, "chmod 7%d5 %s 2>/dev/null || true\n", r.IntN(8), p)
				case 7:
					fmt.Fprintf(&b, "{ rm -rf %s; ln -s %s %[1]s; } 2>/dev/null || true\n", p, q)
				}
			}
			return b.String()
		}
		shell := func(dir, script string) {
			cmd := exec.Command("sh", "-ec", script)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
		first, second := script(25), script(40)
		shell(base, first)
		shell(plain, first)
		w := m.run(t, base, second)
		shell(plain, second)
		apply(t, w)
		same(t, fmt.Sprintf("the base with seed %d", seed), tree(t, base), tree(t, plain))
		if left := changesOf(t, w); len(left) > 0 {
			t.Errorf("seed %d: changes are left: %q", seed, left)
		}
	}
}

// BenchmarkChanges lists 100 changes of a directory with 10,000 files.
func BenchmarkChanges(b *testing.B) {
	m, base := newMaker(b), tempDir(b)
	files := make(map[string]string)
	for i := range 100 {
		for j := range 100 {
			files[fmt.Sprintf("d%02d/f%02d", i, j)] = "before\n"
		}
	}
	fill(b, base, files)
	w := m.run(b, base, "for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5; do echo after change >d1$i/f0$j; done; rm d1$i/f10 d1$i/f11; echo x >d1$i/n1; echo x >d1$i/n2; done")
	if n := len(changesOf(b, w)); n != 100 {
		b.Fatalf("%d changes", n)
	}
	for b.Loop() {
		if _, err := w.Changes(b.Context(), spool.ChangeQuery{}); err != nil {
			b.Fatal(err)
		}
	}
}
