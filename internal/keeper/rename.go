package keeper

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
)

var _ spool.Renamer = (*Backend)(nil)

// Rename implements [spool.Renamer]. The keeper of a live run does it; a finished
// run has none.
func (b *Backend) Rename(ctx context.Context, id spool.RunID, name string) (spool.Info, error) {
	info, err := b.Stat(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	if info.State != spool.StateClosed {
		err := b.callOwner(ctx, id, methodRename, renameParams{Run: id, Name: name}, &info)
		if err == nil || !errors.Is(err, spool.ErrEnded) {
			return info, err
		}
	}
	if err := b.store.Rename(id, name); err != nil {
		return spool.Info{}, err
	}
	if m, err := b.mirrorOf(ctx, id); err == nil {
		m.mu.Lock()
		m.info.Name, m.facts = name, 0
		m.mu.Unlock()
	}
	return b.Stat(ctx, id)
}
