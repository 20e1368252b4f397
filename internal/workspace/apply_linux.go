package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// Apply makes the changes of the paths, or all, in the base. Either all are made or
// none. The error is [spool.ErrExists] if the base has changed since the run began:
// the changes that it returns then say which.
func (w *Workspace) Apply(ctx context.Context, paths []string, dry bool) (spool.ChangePage, error) {
	list, err := w.apply(ctx, paths, dry)
	return firstOf(list), err
}

func (w *Workspace) apply(ctx context.Context, paths []string, dry bool) ([]spool.Change, error) {
	lock, err := w.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if w, err = Open(w.dir); err != nil { // as it is with the lock
		return nil, err
	}
	if err := w.recover(); err != nil {
		return nil, err
	}
	switch {
	case w.state.Discarded:
		return nil, fmt.Errorf("%w: %w", spool.ErrNotFound, ErrDiscarded)
	case w.state.Kind == Snapshot:
		return []spool.Change{}, nil
	}
	base, all, err := w.openChanges()
	if err != nil {
		return nil, err
	}
	defer unix.Close(base)
	chosen, err := w.choose(all, paths)
	if err != nil {
		return nil, err
	}
	list, err := w.check(chosen)
	if err != nil || dry || len(chosen) == 0 {
		return list, err
	}
	return list, w.commit(base, chosen)
}

// choose selects the changes of the paths and below, or all, and the directories
// that they need. Files that are neither files, directories nor links stay behind.
func (w *Workspace) choose(all []change, paths []string) ([]change, error) {
	want := make([]string, len(paths))
	for i, path := range paths {
		if rest, ok := strings.CutPrefix(path, w.state.Base+"/"); ok {
			path = rest
		}
		want[i] = filepath.Clean(path)
		if path == "" || filepath.IsAbs(path) || want[i] == ".." || strings.HasPrefix(want[i], "../") {
			return nil, fmt.Errorf("%w: the path %q is not in the workspace", spool.ErrInvalid, path)
		}
	}
	found := make([]bool, len(want))
	needed := make(map[string]bool)
	for i := range all {
		c := &all[i]
		matched := len(want) == 0
		for j, path := range want {
			if path == "." || c.path == path || strings.HasPrefix(c.path, path+"/") {
				matched, found[j] = true, true
			}
		}
		if !matched || c.op != Deleted && typeOf(&c.upper) == typeOther {
			continue
		}
		needed[c.path] = true
		if c.top != "" && c.op != Deleted {
			for dir := filepath.Dir(c.path); dir != "."; dir = filepath.Dir(dir) {
				needed[dir] = true
				if dir == c.top {
					break
				}
			}
		}
	}
	if i := slices.Index(found, false); i >= 0 && want[i] != "." {
		return nil, fmt.Errorf("%w: the run has no change of %q", spool.ErrNotFound, paths[i])
	}
	var chosen []change
	for _, c := range all {
		if needed[c.path] {
			chosen = append(chosen, c)
		}
	}
	return chosen, nil
}

// check looks for changes of the base since the run began.
func (w *Workspace) check(chosen []change) ([]spool.Change, error) {
	ended, err := w.endings()
	if err != nil {
		return nil, err
	}
	var known map[string]*ending
	if ended != nil {
		known = make(map[string]*ending, len(ended))
		for i := range ended {
			known[ended[i].path()] = &ended[i]
		}
	}
	list := []spool.Change{}
	var conflicts []string
	for i := range chosen {
		p := chosen[i].public()
		if p.Conflict = w.conflict(&chosen[i], known); p.Conflict != "" {
			conflicts = append(conflicts, quote(p.Path))
		}
		list = append(list, p)
	}
	if n := len(conflicts); n > 0 {
		text := strings.Join(conflicts[:min(n, 10)], ", ")
		if n > 10 {
			text += fmt.Sprintf(" and %d more", n-10)
		}
		return list, fmt.Errorf("%w: conflicts: changed in %s since the run began: %s", spool.ErrExists, w.state.Base, text)
	}
	return list, nil
}

// conflict says how the base of a change has changed since the run began, or "".
func (w *Workspace) conflict(c *change, known map[string]*ending) string {
	e := known[c.path]
	switch {
	case c.lost, c.op == Added && known != nil && (e == nil || e.Change.Op != Added):
		return "deleted since the run began"
	case c.op == Added:
		return ""
	case isDir(&c.base):
		if e != nil && e.Change.OldMode != "" && e.Change.OldMode != modeOf(&c.base) {
			return "its permissions have changed since the run began"
		}
		return ""
	}
	ctime := w.ctime(&c.base)
	switch {
	case e != nil && e.Change.Op == Added:
		return "created since the run began"
	case ctime > w.state.Began, e != nil && (e.Ino != c.base.Ino || e.Ctime != ctime):
		return "changed since the run began"
	}
	return ""
}

// ctime returns when a file of the base was changed, not counting an apply that was
// undone.
func (w *Workspace) ctime(st *unix.Stat_t) int64 {
	t := st.Ctim.Nano()
	for _, u := range w.state.Undone {
		if u.Ino == st.Ino && u.Is == t {
			return u.Was
		}
	}
	return t
}

// Discard deletes the changes.
func (w *Workspace) Discard(ctx context.Context) error {
	lock, err := w.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if w, err = Open(w.dir); err != nil {
		return err
	}
	if w.state.Kind == Snapshot {
		return fmt.Errorf("%w: the run wrote to %s itself, and its files as they were before were not kept", spool.ErrUnsupported, w.state.Base)
	}
	if err := w.recover(); err != nil {
		return err
	}
	w.state.Discarded, w.state.Bytes = true, 0
	if err := w.save(); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	for _, name := range []string{upperDir, workDir, endedFile} {
		if err := removeTree(unix.AT_FDCWD, filepath.Join(w.dir, name)); err != nil {
			return fmt.Errorf("discard: %w", err)
		}
	}
	return nil
}

// settle completes or undoes an apply that was interrupted.
func (w *Workspace) settle(ctx context.Context) error {
	if _, err := os.Lstat(filepath.Join(w.dir, journal)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, err := w.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	return w.recover()
}
