package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// ending is a change when the run ended, with the file of the base that it had then.
type ending struct {
	Change spool.Change `json:"change"`
	Ino    uint64       `json:"ino,omitempty"`
	Ctime  int64        `json:"ctime,omitempty"`

	now stamp // of the changed file
}

// stamp differs for a file that was written to or replaced.
type stamp struct {
	ino   uint64
	ctime int64
}

// path returns the path of the change, also one that is not UTF-8.
func (e *ending) path() string {
	if len(e.Change.Base64) > 0 {
		return string(e.Change.Base64)
	}
	return e.Change.Path
}

// current lists the changes as they are now. The mark differs if one of them does, and
// is empty if there are none.
func (w *Workspace) current() (list []ending, mark string, err error) {
	if w.state.Kind == Snapshot {
		list, err = w.snapshotChanges()
	} else {
		var base int
		var changes []change
		if base, changes, err = w.openChanges(); err == nil {
			defer unix.Close(base)
		}
		for i := range changes {
			c := &changes[i]
			list = append(list, ending{c.public(), c.base.Ino, c.base.Ctim.Nano(), stamp{c.upper.Ino, c.upper.Ctim.Nano()}})
		}
	}
	if err != nil || len(list) == 0 {
		return nil, "", err
	}
	h := sha256.New()
	for i := range list {
		e := &list[i]
		fmt.Fprintf(h, "%q %s %d %d\n", e.path(), e.Change.Op, e.now.ino, e.now.ctime)
	}
	return list, hex.EncodeToString(h.Sum(nil)), nil
}

// Note returns what the run has changed until now, at the end of one of its turns. It
// returns nil if that is what the last note said, or if there was none and nothing is
// changed.
func (w *Workspace) Note() (*Summary, error) {
	list, mark, err := w.current()
	if err != nil || mark == w.state.Noted {
		return nil, err
	}
	size, err := w.Size()
	if err != nil {
		return nil, err
	}
	w.state.Noted = mark
	if err := w.save(); err != nil {
		return nil, fmt.Errorf("note the changes: %w", err)
	}
	return summarize(w.state.Kind, size, list), nil
}

// End records the changes of a run that has ended, and the state of the base: what
// differs later has changed since. It returns nil if the last note said the same.
func (w *Workspace) End() (*Summary, error) {
	list, mark, err := w.current()
	if err != nil {
		return nil, err
	}
	if w.state.Bytes, err = w.Size(); err != nil {
		return nil, err
	}
	if list == nil {
		list = []ending{} // not null: that the run has ended is known
	}
	if err := writeFile(filepath.Join(w.dir, endedFile), list); err != nil {
		return nil, fmt.Errorf("record the changes: %w", err)
	}
	w.state.Ended = true
	if err := w.save(); err != nil {
		return nil, fmt.Errorf("record the changes: %w", err)
	}
	if w.state.Kind == Snapshot {
		_ = os.Remove(filepath.Join(w.dir, beforeFile)) // it is not needed any more
	}
	if mark != "" && mark == w.state.Noted {
		return nil, nil
	}
	return summarize(w.state.Kind, w.state.Bytes, list), nil
}

// summarize counts changes.
func summarize(kind string, bytes int64, list []ending) *Summary {
	s := &Summary{Kind: kind, Bytes: bytes, More: max(0, len(list)-MaxNames)}
	for i := range list {
		c := &list[i].Change
		switch c.Op {
		case Added:
			s.Added++
		case Modified:
			s.Modified++
		case Deleted:
			s.Deleted++
		}
		if i < MaxNames {
			s.Changes = append(s.Changes, *c)
		}
	}
	return s
}

// endings reads what End recorded. It returns nil if the run has not ended, or if
// Spool did not see its end.
func (w *Workspace) endings() ([]ending, error) {
	b, err := os.ReadFile(filepath.Join(w.dir, endedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	list := []ending{}
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("read the changes at the end of the run: %w", err)
	}
	return list, nil
}

// Changes lists what the run has changed and was not applied: one page of it.
func (w *Workspace) Changes(ctx context.Context, q spool.ChangeQuery) (spool.ChangePage, error) {
	if w.state.Discarded {
		return spool.ChangePage{}, fmt.Errorf("%w: %w", spool.ErrNotFound, ErrDiscarded)
	}
	if err := w.settle(ctx); err != nil {
		return spool.ChangePage{}, err
	}
	page := newPage(q.MaxBytes)
	if w.state.Kind == Snapshot {
		ended, err := w.endings()
		if err == nil && ended == nil {
			ended, err = w.snapshotChanges()
		}
		if err != nil {
			return spool.ChangePage{}, err
		}
		for i := range ended {
			if e := &ended[i]; q.After == "" || e.path() > q.After {
				page.add(e.Change)
			}
		}
		return page.ChangePage, nil
	}
	base, changes, err := w.openChangesAfter(q.After)
	if err != nil {
		return spool.ChangePage{}, err
	}
	defer unix.Close(base)
	for i := range changes {
		p := changes[i].public()
		if q.Patch && !page.full() {
			if err := ctx.Err(); err != nil {
				return spool.ChangePage{}, context.Cause(ctx)
			}
			if err := w.patch(base, &changes[i], &p); err != nil {
				return spool.ChangePage{}, err
			}
		}
		page.add(p)
	}
	return page.ChangePage, nil
}
