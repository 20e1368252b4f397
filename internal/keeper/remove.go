package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/rpc"
)

var (
	_ spool.Remover        = (*Backend)(nil)
	_ spool.StorageGrouper = (*Backend)(nil)
)

// sealTime is how long the keeper may take to complete the files of a run that
// has ended, also on a busy machine.
const sealTime = 30 * time.Second

// Remove implements [spool.Remover]. It deletes the files itself, and then has
// the keepers drop the runs from memory.
func (b *Backend) Remove(ctx context.Context, ids []spool.RunID, dry bool) (spool.Removal, error) {
	for _, id := range ids {
		info, err := b.Stat(ctx, id)
		if host.IsCorrupt(err) {
			info, err = b.corruptInfo(ctx, id)
		}
		if err != nil {
			return spool.Removal{}, err
		}
		if info.State != spool.StateClosed {
			return spool.Removal{}, host.NotFinished(id)
		}
	}
	swept, err := b.store.RemoveComplete(ids, dry)
	for began := time.Now(); errors.Is(err, store.ErrIncomplete) && time.Since(began) < sealTime; {
		if err := pause.For(ctx, retryAfter); err != nil {
			return spool.Removal{}, err
		}
		swept, err = b.store.RemoveComplete(ids, dry)
	}
	if err != nil {
		return spool.Removal{}, host.RemoveError(err)
	}
	if !dry {
		b.mu.Lock()
		for _, id := range ids {
			if m, ok := b.runs[id]; ok {
				m.gone.Store(true)
			}
		}
		b.mu.Unlock()
		// A keeper that does not answer has nothing in memory any more.
		_, _ = b.callAll(ctx, methodForget, forgetParams{ids}, nil)
	}
	return spool.Removal{Runs: swept.Runs, Blobs: swept.Blobs, Bytes: swept.Bytes}, nil
}

// Complete waits until the logs of all runs that have ended are complete: a keeper
// tells of the end of a run before it has closed the files.
func (b *Backend) Complete(ctx context.Context) error {
	live, err := b.live(ctx)
	if err != nil {
		return err
	}
	for _, info := range live {
		if info.State != spool.StateClosed {
			continue
		}
		if _, err := b.Remove(ctx, []spool.RunID{info.ID}, true); err != nil && !errors.Is(err, spool.ErrNotFound) {
			return err
		}
	}
	return nil
}

// corruptInfo describes a run whose log cannot be read: it is live if a keeper
// says so.
func (b *Backend) corruptInfo(ctx context.Context, id spool.RunID) (spool.Info, error) {
	live, err := b.live(ctx)
	for _, info := range live {
		if info.ID == id {
			return info, nil
		}
	}
	return spool.Info{ID: id, State: spool.StateClosed}, err
}

// Storage implements [spool.Remover].
func (b *Backend) Storage(ctx context.Context) (spool.Storage, error) { return b.StorageBy(ctx, "") }

// StorageBy implements [spool.StorageGrouper].
func (b *Backend) StorageBy(ctx context.Context, by string) (spool.Storage, error) {
	if b.isClosed() {
		return spool.Storage{}, spool.ErrClosed
	}
	infos, err := b.live(ctx)
	if err != nil {
		return spool.Storage{}, err
	}
	live := 0
	for _, info := range infos {
		if info.State != spool.StateClosed {
			live++
		}
	}
	// A run that has ended counts as finished, also while the keeper completes
	// its files.
	st, err := b.store.Storage(by)
	for began := time.Now(); err == nil && st.LiveRuns > live && time.Since(began) < storageTime; {
		if err := pause.For(ctx, retryAfter); err != nil {
			return spool.Storage{}, err
		}
		st, err = b.store.Storage(by)
	}
	return st, err
}

var _ spool.Retainer = (*Backend)(nil)

// Due implements [spool.Retainer]. A keeper of this backend deletes these runs.
func (b *Backend) Due(context.Context) iter.Seq2[spool.Due, error] {
	return host.DueStored(b.store, host.WithDefaults(b.opts.Host.Retention), nil)
}

// storageTime is how long Storage waits for the files of runs that have ended.
// Runs of a program without a keeper count as live after that.
const storageTime = 500 * time.Millisecond

// isUnknownMethod reports whether a keeper of an older build does not know a
// method.
func isUnknownMethod(err error) bool {
	var e *rpc.Error
	return errors.As(err, &e) && e.Code == rpc.CodeMethodNotFound
}

// existing is mirrorOf without runs that were removed.
func (b *Backend) existing(ctx context.Context, id spool.RunID) (*mirror, error) {
	m, err := b.mirrorOf(ctx, id)
	if err == nil && m.removed() {
		return b.successor(m)
	}
	return m, err
}

// successor returns the run that was started with the ID of a removed one.
func (b *Backend) successor(m *mirror) (*mirror, error) {
	j, err := b.store.Open(m.id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run %s: %w", m.id, spool.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", m.id, err)
	}
	b.drop(m)
	return b.addMirror(newMirror(b, j.Info(), j))
}

// mirrorAfter is mirrorOf for a reader with a cursor: one in the middle of a log
// that was removed meanwhile still finds the run and reads that the rest is gone.
func (b *Backend) mirrorAfter(ctx context.Context, id spool.RunID, after spool.Seq) (*mirror, error) {
	if after > 0 {
		return b.mirrorOf(ctx, id)
	}
	return b.existing(ctx, id)
}

// removed reports whether the run has ended and its log was deleted.
func (m *mirror) removed() bool { return m.gone.Load() || m.closed() && m.journal.Removed() }
