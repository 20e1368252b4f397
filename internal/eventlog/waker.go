package eventlog

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/spool-run/spool"
)

// waker wakes the readers of a log when it has new events. The log calls notify
// after it has made events visible; the waker knows nothing of the log but
// where it ends.
//
// Readers that wait share one channel, which is closed to wake them all. The
// writer does not close it: it fills signal, and one of the readers, the
// leader, wakes the others. So an append costs the same with any number of
// readers. A large number of followers is a crowd, which is woken in groups;
// see crowd.
//
// No lost wake-ups: a reader first registers, then looks where the log ends,
// and then waits. An append first moves the end of the log, then looks whether a
// reader is registered.
//
// The waker does not call the log while it holds mu, so the log may call the
// waker while it holds its own mutex.
type waker struct {
	log ender

	waiting  atomic.Int32 // readers in wait
	watching atomic.Int32 // functions in watches
	held     atomic.Int32 // calls of hold without a release
	missed   atomic.Bool  // there was a notify meanwhile

	// signal has room for one. The leader, or the goroutine of the crowd,
	// receives from it.
	signal chan struct{}

	mu      sync.Mutex
	wake    chan struct{} // closed to wake all readers; nil while none waits
	leading bool          // one of the readers is the leader
	watches []*watch
	crowd   *crowd // nil unless there are many followers
}

// ender says where a log ends: the seq of its last event, and whether that is
// final.
type ender interface {
	Last() (seq spool.Seq, sealed bool)
}

func (w *waker) init(log ender) {
	w.log, w.signal = log, make(chan struct{}, 1)
}

// ready reports whether the log has an event after the cursor or is sealed.
func (w *waker) ready(after spool.Seq) bool {
	last, sealed := w.log.Last()
	return last > after || sealed
}

// wait returns nil once the log has an event after the cursor or is sealed, and
// an error if ctx ends before.
func (w *waker) wait(ctx context.Context, after spool.Seq) error {
	for !w.ready(after) {
		wake, signal := w.join()
		var err error
		if !w.ready(after) {
			select {
			case <-wake:
			case <-signal:
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		w.waiting.Add(-1)
		if signal != nil {
			w.wakeAll() // in any case: another reader must lead
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// join registers a reader and returns its channels: wake, and for the leader
// also signal.
func (w *waker) join() (wake, signal chan struct{}) {
	w.waiting.Add(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.crowd != nil {
		return w.crowd.join(), nil
	}
	if w.wake == nil {
		w.wake = make(chan struct{})
	}
	if !w.leading {
		w.leading = true
		signal = w.signal // a nil channel is never ready
	}
	return w.wake, signal
}

// wakeAll wakes all readers. The leader calls it and is the leader no more: the
// next reader that waits is.
func (w *waker) wakeAll() {
	w.mu.Lock()
	wake := w.wake
	w.wake, w.leading = nil, false
	crowded := w.crowd != nil // the signal was for the crowd then
	w.mu.Unlock()
	if wake != nil {
		close(wake)
	}
	if crowded {
		w.fill()
	}
}

// notify wakes the readers and calls the watches that the end of the log
// concerns. It never waits for a reader.
func (w *waker) notify() {
	if w.held.Load() > 0 {
		w.missed.Store(true)
		if w.held.Load() > 0 {
			return // release does it
		}
	}
	if w.waiting.Load() > 0 {
		w.fill()
	}
	if w.watching.Load() > 0 {
		w.callWatches()
	}
}

// hold delays what notify does until release.
func (w *waker) hold() { w.held.Add(1) }

func (w *waker) release() {
	if w.held.Add(-1) == 0 && w.missed.Swap(false) {
		w.notify()
	}
}

// fill fills signal.
func (w *waker) fill() {
	select {
	case w.signal <- struct{}{}:
	default: // the last signal was not received yet
	}
}
