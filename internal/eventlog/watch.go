package eventlog

import (
	"slices"

	"github.com/spool-run/spool"
)

// watch is somebody who is called when there is news.
type watch struct {
	after spool.Seq
	f     func()
}

// Watch has f called once, when there is an event after the cursor or the log
// is sealed: now if that is so, else by whoever appends the event. That one
// waits for f, which must not wait for anything itself and must not append.
func (l *Log) Watch(after spool.Seq, f func()) {
	l.mu.Lock()
	news := l.last > after || l.sealed
	if !news {
		l.watches = append(l.watches, watch{after, f})
	}
	l.mu.Unlock()
	if news {
		f()
	}
}

// due returns those who are to be called now. Callers hold l.mu.
func (l *Log) due() (due []watch) {
	if len(l.watches) == 0 {
		return nil
	}
	l.watches = slices.DeleteFunc(l.watches, func(w watch) bool {
		is := l.last > w.after || l.sealed
		if is {
			due = append(due, w)
		}
		return is
	})
	return due
}
