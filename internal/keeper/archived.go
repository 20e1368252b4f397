package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

// fetch adds the mirror of a run that the archive has.
func (b *Backend) fetch(ctx context.Context, id spool.RunID) (*mirror, error) {
	dir, err := b.opts.Archive.Fetch(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	j, err := s.Open(id)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("run %s: %w", id, err), s.Close())
	}
	m := newMirror(b, j.Info(), j)
	m.archived = s
	return b.addMirror(m)
}

// archivedBlob opens a blob of a run that the archive has.
func (b *Backend) archivedBlob(ctx context.Context, id spool.RunID, d spool.Digest) (_ io.ReadCloser, err error) {
	dir, err := b.opts.Archive.FetchBlob(ctx, id, d)
	if err != nil {
		return nil, err
	}
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	r, err := s.Blob(d)
	return r, errors.Join(err, s.Close())
}

// isEvicted reports whether the files of an archived run were deleted, so that they
// have to be fetched again.
func (m *mirror) isEvicted() bool { return m.archived != nil && m.journal.Removed() }

// drop forgets a mirror. Its readers see where its files end.
func (b *Backend) drop(m *mirror) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.runs[m.id] == m {
		delete(b.runs, m.id)
	}
}

// close closes the files of a mirror.
func (m *mirror) close() error {
	err := m.journal.Close()
	if m.archived != nil {
		err = errors.Join(err, m.archived.Close())
	}
	return err
}
