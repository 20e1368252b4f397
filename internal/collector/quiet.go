package collector

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// A process is quiet if it allocated less than quietBytes since the last look,
// and has worked if it allocated more than workBytes since memory was returned.
const (
	lookEvery  = 3 * time.Second
	quietBytes = 256 << 10
	workBytes  = 1 << 20
)

// ReturnWhenQuiet gives memory back to the system each time this process has
// become quiet after work, until ctx ends.
func ReturnWhenQuiet(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if q.look(allocated()) {
				Return()
				q.returned(allocated())
			}
		}
	}
}

// Return gives the memory that this process does not use back to the system:
// free memory of the heap, and the pages of the program itself, which the
// system maps again from its cache as they are needed.
func Return() {
	debug.FreeOSMemory()
	dropProgram()
}

// quiet decides when memory is to be returned, by the bytes allocated so far.
type quiet struct {
	last uint64 // at the last look
	work uint64 // as many bytes mean that there was work; the start is work
}

// look reports whether the process is quiet after work.
func (q *quiet) look(allocated uint64) bool {
	still := allocated-q.last < quietBytes
	q.last = allocated
	return still && allocated >= q.work
}

// returned notes that memory was returned.
func (q *quiet) returned(allocated uint64) {
	q.last, q.work = allocated, allocated+workBytes
}

// allocated is how many bytes this process has allocated since it began.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
