package host

import (
	"time"

	"github.com/spool-run/spool"
)

// sweepOften applies the retention policy until the host closes. One pass
// comes soon after the first start, so that short-lived hosts do their part.
func (h *Host) sweepOften() {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
			// What could not be deleted now is tried again next time;
			// the store reports it to whoever lists it.
			_, _ = h.store.Sweep(h.opts.Retention, h.inUse)
			h.mu.Lock()
			h.trim()
			h.mu.Unlock()
			timer.Reset(DefaultSweepEvery)
		}
	}
}

func (h *Host) inUse(id spool.RunID) bool {
	h.mu.Lock()
	r, ok := h.runs[id]
	h.mu.Unlock()
	return ok && !r.isDone()
}
