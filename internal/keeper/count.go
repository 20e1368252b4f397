package keeper

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/store"
)

var _ spool.Counter = (*Backend)(nil)

// Count implements [spool.Counter].
func (b *Backend) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	f = host.CountFilter(f)
	if f.Check() != nil || b.isClosed() || !store.Countable(&f) {
		return host.CountList(b.List(ctx, f))
	}
	infos, err := b.live(ctx)
	if err != nil {
		return nil, err
	}
	live := make(map[spool.RunID]spool.Info, len(infos))
	for _, info := range infos {
		live[info.ID] = info
	}
	return host.CountStored(b.store, &f, live, func(info spool.Info) spool.Info {
		if now, err := b.Stat(ctx, info.ID); err == nil {
			return now
		}
		return info
	})
}
