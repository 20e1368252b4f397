package collector

import (
	"context"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// A process has worked if it used workTime of the processors since memory was
// returned, and is quiet after that if the time since the last look has less than a
// tenth of it: collecting what much work left behind takes time, too.
const (
	firstLook = 50 * time.Millisecond // so that what only the start needs is returned soon
	lookEvery = 3 * time.Second       // from the seventh look on; before, the time doubles
	workTime  = 2 * time.Millisecond
)

// ReturnWhenQuiet gives memory back to the system each time this process has
// become quiet after work, until ctx ends.
func ReturnWhenQuiet(ctx context.Context) {
	wait := firstLook
	timer := time.NewTimer(wait)
	defer timer.Stop()
	var q quiet
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if q.look(used()) {
				Return()
				q.returned(used())
			}
			wait = min(2*wait, lookEvery)
			timer.Reset(wait)
		}
	}
}

// Return gives the memory that this process does not use back to the system:
// free memory of the heap, and the pages of the program itself, which the
// system maps again from its cache as they are needed.
func Return() {
	runtime.GC() // pools give up what they hold at the second collection
	debug.FreeOSMemory()
	dropProgram()
}

// quiet decides when memory is to be returned, by the processor time used so far.
type quiet struct {
	last time.Duration // at the last look
	done time.Duration // when memory was returned; the start is work
}

// look reports whether the process is quiet after work.
func (q *quiet) look(used time.Duration) bool {
	lately, work := used-q.last, used-q.done
	q.last = used
	return work >= workTime && 10*lately < work
}

// returned notes that memory was returned.
func (q *quiet) returned(used time.Duration) { q.last, q.done = used, used }

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // then memory is returned once
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
