package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

var (
	_ spool.Remover        = (*Host)(nil)
	_ spool.StorageGrouper = (*Host)(nil)
)

// Remove implements [spool.Remover].
func (h *Host) Remove(ctx context.Context, ids []spool.RunID, dry bool) (spool.Removal, error) {
	runs := make([]*run, 0, len(ids))
	for _, id := range ids {
		r, err := h.findExisting(id)
		if IsCorrupt(err) {
			continue // a run of this host would be in memory
		}
		if err != nil {
			return spool.Removal{}, err
		}
		if r.Info().State != spool.StateClosed {
			return spool.Removal{}, NotFinished(id)
		}
		// The end of the log may not be in the files yet.
		select {
		case <-r.done:
		case <-ctx.Done():
			return spool.Removal{}, context.Cause(ctx)
		}
		runs = append(runs, r)
	}
	var removal spool.Removal
	if h.store == nil {
		for _, r := range runs {
			removal.Runs = append(removal.Runs, r.info.ID)
			removal.Bytes += r.Info().Bytes
		}
	} else {
		swept, err := h.store.RemoveComplete(ids, dry)
		if err != nil {
			return spool.Removal{}, RemoveError(err)
		}
		removal = spool.Removal{Runs: swept.Runs, Blobs: swept.Blobs, Bytes: swept.Bytes}
	}
	if !dry {
		h.Forget(ids)
	}
	return removal, nil
}

// NotFinished is the error for the removal of a run that has not ended.
func NotFinished(id spool.RunID) error {
	return fmt.Errorf("run %s: %w: it has not ended", id, spool.ErrBusy)
}

// IsCorrupt reports whether an error means that the log of a run is corrupt.
func IsCorrupt(err error) bool {
	var corrupt *store.CorruptError
	return errors.As(err, &corrupt)
}

// RemoveError returns the error of a backend for one of the store.
func RemoveError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: %w", spool.ErrNotFound, err)
	case errors.Is(err, store.ErrIncomplete):
		return fmt.Errorf("%w: %w", spool.ErrBusy, err)
	}
	return err
}

// Forget drops finished runs, which another process may have removed, from
// memory. Their readers continue.
func (h *Host) Forget(ids []spool.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if r, ok := h.runs[id]; ok && r.isDone() {
			if h.store == nil {
				delete(h.runs, id)
				h.noteForgotten(id)
				continue
			}
			r.mu.Lock()
			r.removed = true
			r.mu.Unlock()
		}
	}
}

// Storage implements [spool.Remover].
func (h *Host) Storage(ctx context.Context) (spool.Storage, error) { return h.StorageBy(ctx, "") }

// StorageBy implements [spool.StorageGrouper].
func (h *Host) StorageBy(_ context.Context, by string) (spool.Storage, error) {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	if closed {
		return spool.Storage{}, spool.ErrClosed
	}
	if h.store != nil {
		return h.store.Storage(by)
	}
	if by != "" {
		return spool.Storage{}, fmt.Errorf("group runs: %w without a state directory", spool.ErrUnsupported)
	}
	var st spool.Storage
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.runs {
		if !r.isStarted() {
			continue
		}
		if r.isDone() {
			st.FinishedRuns++
			st.FinishedBytes += r.Info().Bytes
		} else {
			st.LiveRuns++
			st.LiveBytes += r.Info().Bytes
		}
	}
	return st, nil
}

// findExisting is find without runs that were removed.
func (h *Host) findExisting(id spool.RunID) (*run, error) {
	r, err := h.find(id)
	if err == nil && r.isRemoved() {
		return nil, fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
	}
	return r, err
}

// findAfter is find for a reader with a cursor: one in the middle of a log that
// was removed meanwhile still finds the run and reads that the rest is gone.
func (h *Host) findAfter(id spool.RunID, after spool.Seq) (*run, error) {
	if after > 0 {
		return h.find(id)
	}
	return h.findExisting(id)
}

// isRemoved reports whether a finished run was removed, by this process or
// another.
func (r *run) isRemoved() bool {
	if !r.isDone() || r.journal == nil {
		return false
	}
	r.mu.Lock()
	removed := r.removed
	r.mu.Unlock()
	return removed || r.journal.Removed()
}
