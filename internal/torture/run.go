package torture

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// run is one worker and the events its client received.
type run struct {
	plan   Plan
	id     string // the server's id of the run
	via    string // the name of the client
	driver int
	began  time.Time // before the request
	ledger *ledger
	killed atomic.Bool // by the torture, directly or through the server

	mu      sync.Mutex
	in      *inbox
	acked   uint32
	moved   time.Time     // time of the last event
	open    time.Time     // when it was last known to be open
	changed chan struct{} // closed and replaced on each change
	asked   any           // the connection of the start; nil before
	begun   bool          // the start was answered
	absent  bool          // the server does not know the run
	failed  []Violation   // in addition to those of the history
}

// result is the summary of a run for the audit at the end.
type result struct {
	name, id, via string
	session       string // of the codex dialect; empty for a run of package client
	tty           bool
	last          uint64
	sum           [sha256.Size]byte
	failure       string
}

// violate records a violation once: a repeated request that gives the same
// answer adds nothing.
func (r *run) violate(kind Kind, format string, args ...any) {
	v := Violation{Kind: kind, Detail: fmt.Sprintf(format, args...), when: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.failed, func(o Violation) bool { return o.Kind == v.Kind && o.Detail == v.Detail }) {
		r.failed = append(r.failed, v)
	}
}

// take changes the inbox and wakes the waiters.
func (r *run) take(f func(in *inbox)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(r.in)
	r.moved = time.Now()
	if !r.in.hist.closed {
		r.open = r.moved
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// window is how long servers of the codex dialect know the id of a closed
// process.
const window = 30 * time.Second

// forgettable reports whether the server may have forgotten the run: it was
// last known to be open longer ago than the window.
func (r *run) forgettable() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.open) > window
}

func (r *run) last() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.in.hist.last
}

var errHung = errors.New("no event for too long")

// wait returns once the history satisfies wanted, or is closed, or there was no
// event for the given time.
func (r *run) wait(ctx context.Context, patience time.Duration, wanted func(h *history) bool) error {
	for {
		r.mu.Lock()
		done := r.in.hist.closed || wanted != nil && wanted(r.in.hist)
		changed, left := r.changed, time.Until(r.moved.Add(patience))
		r.mu.Unlock()
		if done {
			return nil
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
			timer.Stop()
		case <-timer.C:
			return errHung
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// discard removes the files of the run.
func (r *run) discard() {
	r.ledger.close()
	_ = os.Remove(r.plan.Ledger) // removed with the directory otherwise
}
