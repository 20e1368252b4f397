package collector

import (
	"context"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// A process has worked if it used workTime of the processors between two looks. It is
// quiet after that if it uses little of a processor, and less than a tenth of what it
// used at its busiest since memory was returned. One that goes on with little work is
// taken for quiet some time later, if its memory has grown, or at once for as long as it
// finishes what much work has left. What timers use while nothing happens never adds up
// to work. With a large heap returning memory is work itself, which must be worth it.
// Memory that comes back at little work is what that work needs: it is left alone for
// longer each time, until the process has worked much.
const (
	firstLook = 50 * time.Millisecond // so that what only the start needs is returned soon
	lookEvery = 3 * time.Second       // from the seventh look on; before, the time doubles
	workTime  = 4 * time.Millisecond
	little    = lookEvery / 20 // of lookEvery
	someTime  = 3 * lookEvery
	longTime  = 5 * time.Minute
	// After much work a process looks every soon, for some time: a part of it, such as
	// filing runs, comes seconds later.
	soon, soonFor = 250 * time.Millisecond, 15 * time.Second
	// finishing is how often memory is returned at once while a process finishes: looking
	// for what is to be removed, filing and compressing each take some.
	finishing = 6
	// worthWork and worthTime are how many times the processor time of returning memory
	// a process must have worked, or must have been at it, before it does that again.
	worthWork, worthTime = 10, 60
	// morePages is by how much the pages of the program in memory may grow, and
	// moreMemory the other memory of a process that goes on with little work.
	morePages, moreMemory = 2 << 20, 8 << 20
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
			switch q.look(wait, used(), resident()) {
			case all:
				before := used()
				Return()
				q.returned(before, used(), resident())
			case program:
				dropProgram()
			case nothing:
			}
			wait = q.next(wait)
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

// amount is how much memory is returned.
type amount int

const (
	nothing amount = iota
	program        // the pages of the program
	all
)

// quiet decides when memory is to be returned, by the processor time used so far.
type quiet struct {
	last   time.Duration // at the last look
	done   time.Duration // when memory was returned; the start is work
	most   time.Duration // of lookEvery between two looks since then
	rest   int64         // what the process had in memory then, without the program
	worked bool          // since then
	since  time.Duration // since then
	cost   time.Duration // of returning memory
	finish int           // how often memory may be returned at once; see finishing
	// dropped says that only the program was dropped at the last look, and pages is what
	// of it was in memory a look after that: what a process needs that does nothing.
	dropped bool
	pages   int64
	// leave is how long memory that came back at little work is left alone, and
	// leavePages is the same for the program, which was dropped sinceDrop ago.
	leave, leavePages, sinceDrop time.Duration
}

// next returns the time to the next look, by that to the last one.
func (q *quiet) next(wait time.Duration) time.Duration {
	wait = min(2*wait, lookEvery)
	if q.finish > 0 && q.since < soonFor {
		wait = min(wait, soon)
	}
	return wait
}

// look returns what is to be returned now, some time after the last look: all if the
// process is quiet after work, and the program if more of it is in memory than a process
// needs that does nothing.
func (q *quiet) look(passed, used time.Duration, m memory) amount {
	lately := used - q.last
	share := time.Duration(float64(lately) * float64(lookEvery) / float64(max(passed, soon)))
	q.last, q.most = used, max(q.most, share)
	q.since += passed
	q.sinceDrop += passed
	if q.dropped {
		q.dropped, q.pages = false, m.program
	}
	q.worked = q.worked || lately >= workTime
	if lately >= little {
		q.finish = finishing
		q.leave, q.leavePages = 0, 0
	}
	if share >= little {
		return nothing
	}
	if q.worked && q.isWorth(used-q.done) {
		if q.isQuiet(share) {
			return all
		}
		if q.hasGrown(m.own()) {
			q.leave = longer(q.leave)
			return all
		}
	}
	if q.done == 0 || m.program <= q.pages+morePages || q.sinceDrop < q.leavePages {
		return nothing
	}
	q.leavePages, q.sinceDrop = longer(q.leavePages), 0
	q.dropped = true
	return program
}

// isQuiet reports whether a process that uses little of a processor is quiet after work.
func (q *quiet) isQuiet(share time.Duration) bool {
	return 10*share < q.most || q.done > 0 && q.finish > 0
}

// hasGrown reports whether a process that goes on with little work has more memory than it
// had when some was returned.
func (q *quiet) hasGrown(memory int64) bool {
	return q.done > 0 && q.since > max(someTime, q.leave) && memory >= q.rest+moreMemory
}

// longer returns how long memory is left alone that was left alone for d before.
func longer(d time.Duration) time.Duration { return min(max(4*d, 2*lookEvery), longTime) }

func (q *quiet) isWorth(work time.Duration) bool {
	return work >= worthWork*q.cost || q.since >= worthTime*q.cost
}

// returned notes that all memory was returned, by the processor time used before and
// after that, and by what is left.
func (q *quiet) returned(before, after time.Duration, left memory) {
	*q = quiet{last: after, done: after, rest: left.own(), cost: after - before, finish: max(0, q.finish-1), leave: q.leave, leavePages: q.leavePages}
}

// memory is what a process has in memory, in bytes.
type memory struct {
	all     int64
	program int64 // of files, which are mostly the program
}

// own is what is not the program.
func (m memory) own() int64 { return m.all - m.program }

// used is the processor time of this process.
func used() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0 // then memory is returned once
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
