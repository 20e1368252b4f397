package host

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

var _ spool.Renamer = (*Host)(nil)

// Rename implements [spool.Renamer].
func (h *Host) Rename(ctx context.Context, id spool.RunID, name string) (spool.Info, error) {
	r, err := h.findExisting(id)
	if err != nil {
		return spool.Info{}, err
	}
	if r.host == nil && r.Info().State != spool.StateClosed {
		return spool.Info{}, r.foreign()
	}
	if len(name) > store.MaxName {
		return spool.Info{}, fmt.Errorf("run %s: %w: a name of %d bytes, of at most %d", id, spool.ErrInvalid, len(name), store.MaxName)
	}
	if err := h.setName(r, name); err != nil {
		return spool.Info{}, err
	}
	h.news.mark(r)
	if r.journal == nil {
		return r.Info(), nil
	}
	if r.Info().State != spool.StateClosed {
		// The end of the log has the name, too; the run may be ending now.
		r.note()
	}
	if err := h.store.Rename(id, name); err != nil {
		return spool.Info{}, fmt.Errorf("rename run %s: %w", id, err)
	}
	return r.Info(), nil
}
