package workspace

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// TestSnapshot reports what changed in a directory, and refuses to undo it.
func TestSnapshot(t *testing.T) {
	m, base := newMaker(t), tempDir(t)
	fill(t, base, map[string]string{"a": "a", "b": "b", "c/d": "d"})
	w := m.make(t, base, Snapshot)
	later(t, base, w, "a")
	fill(t, base, map[string]string{"new/x": "x"})
	if err := errors.Join(os.Remove(filepath.Join(base, "c/d")), os.Chmod(filepath.Join(base, "b"), 0o600), os.Chmod(filepath.Join(base, "c"), 0o700)); err != nil {
		t.Fatal(err)
	}
	want := []string{"m a", "m b 0644>0600", "m c 0755>0700", "d c/d", "a new", "a new/x"}
	same(t, "changes of a live run", changesOf(t, w), want)
	s, err := w.End()
	if err != nil || s.Added != 2 || s.Modified != 3 || s.Deleted != 1 {
		t.Errorf("summary %+v, %v", s, err)
	}
	fill(t, base, map[string]string{"after": "the end"})
	same(t, "changes", changesOf(t, w), want)
	if changes, err := w.Apply(t.Context(), nil, false); err != nil || len(changes.Changes) > 0 {
		t.Errorf("apply: %v, %v", changes, err)
	}
	if err := w.Discard(t.Context()); !errors.Is(err, spool.ErrUnsupported) || !strings.Contains(err.Error(), "were not kept") {
		t.Errorf("discard: %v", err)
	}
}

// TestSnapshotOfNoChanges asks for the changes of a run that made none, after its end.
func TestSnapshotOfNoChanges(t *testing.T) {
	w := newMaker(t).make(t, tempDir(t), Snapshot)
	if s, err := w.End(); err != nil || s == nil || s.Text() != "the run changed nothing in its workspace" {
		t.Errorf("%+v, %v", s, err)
	}
	same(t, "changes", changesOf(t, w), nil)
}
