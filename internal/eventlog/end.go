package eventlog

import (
	"sync/atomic"

	"github.com/spool-run/spool"
)

// end is where a log ends: the seq of its last event and whether that is final.
// It is one word, so that readers that wait look at it without a lock.
type end struct{ v atomic.Uint64 }

func (e *end) get() (last spool.Seq, sealed bool) {
	v := e.v.Load()
	return spool.Seq(v >> 1), v&1 != 0
}

func (e *end) set(last spool.Seq, sealed bool) {
	v := uint64(last) << 1
	if sealed {
		v |= 1
	}
	e.v.Store(v)
}
