package host

import (
	"context"
	"io"

	"github.com/spool-run/spool"
)

// Import adds the run of a file that runfile.Write wrote.
func (h *Host) Import(_ context.Context, r io.Reader) (spool.Info, error) {
	h.mu.Lock()
	closed := h.closed
	h.mu.Unlock()
	switch {
	case closed:
		return spool.Info{}, spool.ErrClosed
	case h.store == nil:
		return spool.Info{}, spool.ErrUnsupported
	}
	return h.store.Import(r, func() spool.RunID { return spool.RunID(NewID()) })
}
