package eventlog

import (
	"slices"

	"github.com/spool-run/spool"
)

// watch is a function to call when the log has an event after a cursor.
type watch struct {
	after spool.Seq
	f     func()
}

// watch has f called once, when the log has an event after the cursor or is
// sealed: at once if that is so, else by the goroutine that appends the event. After
// stop it is not called any more, unless it is being called.
func (w *waker) watch(after spool.Seq, f func()) (stop func()) {
	if w.ready(after) {
		f()
		return func() {}
	}
	x := &watch{after, f}
	w.mu.Lock()
	w.watches = append(w.watches, x)
	w.watching.Add(1)
	w.mu.Unlock()
	if w.ready(after) { // an append may not have seen the watch
		w.callWatches()
	}
	return func() { w.unwatch(x) }
}

// unwatch removes a watch, unless it was called.
func (w *waker) unwatch(x *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i := slices.Index(w.watches, x); i >= 0 {
		w.watches = slices.Delete(w.watches, i, i+1)
		w.watching.Add(-1)
	}
}

// callWatches calls and removes the watches whose events exist.
func (w *waker) callWatches() {
	last, sealed := w.log.Last()
	var due []*watch
	w.mu.Lock()
	w.watches = slices.DeleteFunc(w.watches, func(x *watch) bool {
		is := last > x.after || sealed
		if is {
			due = append(due, x)
		}
		return is
	})
	w.watching.Add(-int32(len(due)))
	w.mu.Unlock()
	for _, x := range due {
		x.f()
	}
}
