package keeper

import (
	"context"

	"github.com/spool-run/spool"
)

var _ spool.Meter = (*Backend)(nil)

// Measure implements [spool.Meter]. The keepers are on this machine, so it
// measures the processes itself.
func (b *Backend) Measure(ctx context.Context, ids []spool.RunID) ([]spool.Resources, error) {
	if b.isClosed() {
		return nil, spool.ErrClosed
	}
	var infos []spool.Info
	for _, id := range ids {
		info, err := b.Stat(ctx, id)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	if len(ids) == 0 {
		var err error
		if infos, err = b.live(ctx); err != nil {
			return nil, err
		}
	}
	return b.opts.Host.Measured(infos)
}
