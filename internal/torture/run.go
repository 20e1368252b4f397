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

// run is one worker under trial.
type run struct {
	plan   Plan
	id     string // what the server calls it
	via    string // the driver
	driver int
	began  time.Time // before the server was asked
	ledger *ledger
	killed atomic.Bool // by us, or by the server on our behalf

	mu      sync.Mutex
	in      *inbox
	acked   uint32
	moved   time.Time     // when something last came
	open    time.Time     // when it was last heard of as not closed
	changed chan struct{} // closed and replaced when it does
	asked   any           // the connection that the start went over; nil before
	begun   bool          // the start was answered
	absent  bool          // the server does not know it
	failed  []Violation   // beside those of the history
}

// result is what stays of a run for the audit at the end.
type result struct {
	name, id, via string
	session       string // of the dialect; empty for a run of package client
	tty           bool
	last          uint64
	sum           [sha256.Size]byte
	failure       string
}

// violate notes a broken promise, once: a client that asks again and is told
// the same learns nothing new.
func (r *run) violate(kind Kind, format string, args ...any) {
	v := Violation{Kind: kind, Detail: fmt.Sprintf(format, args...), when: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.failed, func(o Violation) bool { return o.Kind == v.Kind && o.Detail == v.Detail }) {
		r.failed = append(r.failed, v)
	}
}

// take changes the inbox and tells whoever waits.
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

// window is how long servers of the dialect know the id of a closed process.
const window = 30 * time.Second

// forgettable reports whether the server may have forgotten the run: it was
// heard of as open so long ago that it may have been closed for the window.
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

var errHung = errors.New("nothing came for too long")

// wait returns once the history is as wanted, or closed, or nothing came for
// so long.
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

// discard removes what the run needed.
func (r *run) discard() {
	r.ledger.close()
	_ = os.Remove(r.plan.Ledger) // with the rest of the directory at the latest
}
