package host

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
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
	// sweepPause limits the time spent deleting: after every few runs a sweep
	// rests this many times as long as they took. Starts go on beside it.
	sweepPause = 3
	// dropStep is how many swept runs are dropped from memory at a time, while
	// no run can start.
	dropStep = 64
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
	for more := true; more && h.ctx.Err() == nil; {
		swept, _ := h.store.Sweep(h.opts.Retention, h.inUse, h.restBetween(sweepPause))
		more = swept.More
		for ids := range slices.Chunk(swept.Runs, dropStep) {
			h.drop(ids)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trim()
}

// drop takes runs that were swept from memory.
func (h *Host) drop(ids []spool.RunID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if r, ok := h.runs[id]; ok && r.isDone() {
			delete(h.runs, id)
			r.retire()
		}
	}
}

var _ spool.Retainer = (*Host)(nil)

// Due implements [spool.Retainer].
func (h *Host) Due(context.Context) iter.Seq2[spool.Due, error] {
	if h.store == nil {
		return func(func(spool.Due, error) bool) {}
	}
	return DueStored(h.store, h.opts.Retention, h.inUse)
}

// DueStored yields the runs of a store that a policy deletes.
func DueStored(s *store.Store, p store.Retention, keep func(spool.RunID) bool) iter.Seq2[spool.Due, error] {
	return func(yield func(spool.Due, error) bool) {
		for due, err := range s.Due(p, keep) {
			if !yield(spool.Due{Run: due.Run, Why: due.Why}, err) {
				return
			}
		}
	}
}

// WithDefaults returns a policy whose zero fields have the defaults.
func WithDefaults(p store.Retention) store.Retention {
	p.Age = cmp.Or(p.Age, DefaultRetainAge)
	p.TotalBytes = cmp.Or(p.TotalBytes, DefaultRetainBytes)
	p.Runs = cmp.Or(p.Runs, DefaultRetainRuns)
	p.Compress = cmp.Or(p.Compress, DefaultCompressAfter)
	return p
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
