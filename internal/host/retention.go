package host

import (
	"time"

	"github.com/spool-run/spool"
)

const (
	// firstSweep is soon after the first start, so that short-lived hosts
	// sweep, too.
	firstSweep = time.Second
	// 1/sweepShare of the quota may be written between two checks.
	sweepShare = 64
	// sweepRest limits the time spent sweeping: the next sweep waits this many
	// times as long as the last one took.
	sweepRest = 10
)

// sweepOften applies the retention policy until the host closes: periodically,
// and sooner if much is written.
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
			_ = h.recoverOrphans() // left to the next host
		}
		h.sweep()
		if !h.pause(sweepRest * time.Since(began)) {
			return
		}
		timer.Reset(DefaultSweepEvery)
	}
}

// sweep applies the policy once, with other periodic work.
func (h *Host) sweep() {
	h.written.Store(0)
	// Failures are retried next time; listing the runs reports them.
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

// wrote counts appended bytes and triggers a check of the quota when they are
// many.
func (h *Host) wrote(n int) {
	quota := h.opts.Retention.TotalBytes
	if h.store == nil || quota <= 0 || h.written.Add(int64(n)) < quota/sweepShare {
		return
	}
	select {
	case h.nudge <- struct{}{}:
	default: // a check is already pending
	}
}

func (h *Host) inUse(id spool.RunID) bool {
	h.mu.Lock()
	r, ok := h.runs[id]
	h.mu.Unlock()
	return ok && !r.isDone()
}
