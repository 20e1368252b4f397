package keeper

import (
	"context"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
)

// Import adds the run of a file that runfile.Write wrote.
func (b *Backend) Import(_ context.Context, r io.Reader) (spool.Info, error) {
	if b.isClosed() {
		return spool.Info{}, spool.ErrClosed
	}
	return b.store.Import(r, func() spool.RunID { return spool.RunID(host.NewID()) })
}
