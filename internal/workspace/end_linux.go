package workspace

import (
	"context"
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
}

// path returns the path of the change, also one that is not UTF-8.
func (e *ending) path() string {
	if len(e.Change.Base64) > 0 {
		return string(e.Change.Base64)
	}
	return e.Change.Path
}

// End records the changes of a run that has ended, and the state of the base: what
// differs later has changed since.
func (w *Workspace) End() (*Summary, error) {
	var list []ending
	if w.state.Kind == Snapshot {
		changes, err := w.snapshotChanges()
		if err != nil {
			return nil, err
		}
		for _, c := range changes {
			list = append(list, ending{Change: c})
		}
	} else {
		base, changes, err := w.openChanges()
		if err != nil {
			return nil, err
		}
		defer unix.Close(base)
		for i := range changes {
			c := &changes[i]
			list = append(list, ending{c.public(), c.base.Ino, c.base.Ctim.Nano()})
		}
		if w.state.Bytes, err = w.Size(); err != nil {
			return nil, err
		}
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
	changes := make([]spool.Change, len(list))
	for i := range list {
		changes[i] = list[i].Change
	}
	return summarize(w.state.Kind, w.state.Bytes, changes), nil
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

// Changes lists what the run has changed and was not applied.
func (w *Workspace) Changes(ctx context.Context, patch bool) ([]spool.Change, error) {
	if w.state.Discarded {
		return nil, fmt.Errorf("%w: %w", spool.ErrNotFound, ErrDiscarded)
	}
	if err := w.settle(ctx); err != nil {
		return nil, err
	}
	list := []spool.Change{}
	if w.state.Kind == Snapshot {
		ended, err := w.endings()
		if err != nil {
			return nil, err
		}
		if ended == nil {
			return w.snapshotChanges()
		}
		for _, e := range ended {
			list = append(list, e.Change)
		}
		return list, nil
	}
	base, changes, err := w.openChanges()
	if err != nil {
		return nil, err
	}
	defer unix.Close(base)
	for i := range changes {
		p := changes[i].public()
		if patch {
			if err := w.patch(base, &changes[i], &p); err != nil {
				return nil, err
			}
		}
		list = append(list, p)
	}
	return list, nil
}
