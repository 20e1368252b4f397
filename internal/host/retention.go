package host

import (
	"time"

	"github.com/spool-run/spool"
)

const (
	// firstSweep is soon after the first start, so that short-lived hosts
	// do their part.
	firstSweep = time.Second
	// sweepShare of the quota may be written before it is looked at again.
	sweepShare = 64
	// sweepRest is how many times as long as a sweep took the next one
	// waits, however much is written.
	sweepRest = 10
)

// sweepOften applies the retention policy until the host closes: once in a
// while, and sooner if much is written.
func (h *Host) sweepOften() {
	timer := time.NewTimer(firstSweep)
	defer timer.Stop()
	for first := true; ; first = false {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		case <-h.nudge:
		}
		began := time.Now()
		if first {
			_ = h.recoverOrphans() // they stay for the next host
		}
		h.sweep()
		if !h.pause(sweepRest * time.Since(began)) {
			return
		}
		timer.Reset(DefaultSweepEvery)
	}
}

// sweep does that once, and what else is due now and then.
func (h *Host) sweep() {
	h.written.Store(0)
	// What could not be deleted or settled now is tried again next time;
	// the store reports it to whoever lists it.
	_ = h.recoverDead()
	swept, _ := h.store.Sweep(h.opts.Retention, h.inUse)
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range swept.Runs {
		if r, ok := h.runs[id]; ok && r.isDone() {
			delete(h.runs, id)
			r.retire()
		}
	}
	h.trim()
}

// wrote counts what was appended, and has the quota looked at when that is
// much of it.
func (h *Host) wrote(n int) {
	quota := h.opts.Retention.TotalBytes
	if h.store == nil || quota <= 0 || h.written.Add(int64(n)) < quota/sweepShare {
		return
	}
	select {
	case h.nudge <- struct{}{}:
	default: // it is on its way
	}
}

func (h *Host) inUse(id spool.RunID) bool {
	h.mu.Lock()
	r, ok := h.runs[id]
	h.mu.Unlock()
	return ok && !r.isDone()
}
