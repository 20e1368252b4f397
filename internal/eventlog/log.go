// Package eventlog is the log of one run: append-only, numbered without holes,
// readable from any cursor. One owner appends; any number of readers hold
// cursors. A reader has no queue, so a slow, late or lost reader costs the
// writer nothing.
//
// The newest events stay in memory up to a bound. Older ones are read from a
// [Tier]. Without a tier they are lost, and a reader that asks for them gets
// exactly one truncated event instead.
//
// [Log] stores the events; its waker wakes the readers that wait for more.
package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// ErrSealed is returned by Append once the closed event is in the log.
var ErrSealed = errors.New("log is closed")

// Tier is the durable copy of a log. The log calls Append from one goroutine at
// a time; any goroutine may call Read at any time.
type Tier interface {
	// Append stores an event. Once it has returned, a crash of this process
	// cannot lose the event.
	Append(e *spool.Event) error
	// Read appends to dst the events after a cursor: at least one if there
	// is one, and then as many as fit in maxBytes.
	Read(dst []spool.Event, after spool.Seq, maxBytes int) ([]spool.Event, error)
}

// DefaultMemory is the number of bytes of events that a log keeps in memory.
const DefaultMemory = 256 << 10

// eventOverhead is the memory that an event needs beside its payload.
const eventOverhead = 160

// Options configure a log.
type Options struct {
	Run    spool.RunID
	Tier   Tier             // nil keeps the log in memory only
	Memory int              // bytes kept in memory; zero means DefaultMemory
	Shared *Budget          // lends memory beyond Memory; may be nil
	Forget int              // larger events are not kept in memory; zero keeps all
	Last   spool.Seq        // last seq of an existing log
	Sealed bool             // the existing log is complete
	Relays *Batches         // what relays of the log read; nil means its own
	Now    func() time.Time // nil means time.Now
}

// Log is the log of one run. It is safe for concurrent use.
type Log struct {
	run    spool.RunID
	tier   Tier
	memory int
	budget *Budget
	forget int
	now    func() time.Time
	waker  waker
	relays relays

	// appendMu serializes writers. It is held while the tier writes, and
	// comes before mu.
	appendMu sync.Mutex
	lastTime time.Time
	next     spool.Event // the event that the tier writes

	// end is changed with mu held.
	end end

	mu        sync.Mutex
	recent    []*segment // the newest events, from first to last
	bytes     int        // memory of recent
	borrowed  int        // bytes of it that the budget lent
	first     spool.Seq  // of recent; one after the end if recent is empty
	pinned    bool       // recent holds events that the tier does not have
	followers int        // running calls of Follow
	shared    *pages     // pages of the tier for a crowd of followers; else nil
}

// New returns a log.
func New(o Options) *Log {
	l := &Log{run: o.Run, tier: o.Tier, memory: o.Memory, budget: o.Shared, forget: o.Forget, now: o.Now, first: o.Last + 1}
	l.end.set(o.Last, o.Sealed)
	if l.memory <= 0 {
		l.memory = DefaultMemory
	}
	if l.now == nil {
		l.now = time.Now
	}
	l.relays.batches = o.Relays
	l.waker.init(l)
	return l
}

// Last returns the highest seq so far and whether it is final.
func (l *Log) Last() (seq spool.Seq, sealed bool) { return l.end.get() }

// Wait returns nil once the log has an event after the cursor or is sealed. It
// returns an error only if ctx ends.
func (l *Log) Wait(ctx context.Context, after spool.Seq) error { return l.waker.wait(ctx, after) }

// Watch has f called once, when the log has an event after the cursor or is
// sealed: at once if that is so, else by the goroutine that appends the event.
// Append waits for f, so f must not block and must not append. After stop it is not
// called any more, unless it is being called.
func (l *Log) Watch(after spool.Seq, f func()) (stop func()) { return l.waker.watch(after, f) }

// Hold leaves readers that sleep asleep, whatever is appended, until Release. Events are
// visible nevertheless: it is for a writer that is about to append several, and saves that
// readers wake up for each.
func (l *Log) Hold() { l.waker.hold() }

// Release ends a Hold, and wakes the readers if there are new events.
func (l *Log) Release() { l.waker.release() }

// Append adds an event and returns its seq. It waits for the tier but never for
// a reader: once it has returned nil, the event is durable and visible. The log
// owns the event's Bytes and Data from then on, unless [Log.Keeps] says that it
// does not keep them.
func (l *Log) Append(e spool.Event) (spool.Seq, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.number(&e); err != nil {
		return 0, err
	}
	if err := l.store(&e); err != nil {
		return 0, err
	}
	if !l.Keeps(e.Size()) {
		l.reveal(e.Seq, false)
		return e.Seq, nil
	}
	l.publish(e)
	return e.Seq, nil
}

// AppendEnd appends the last event of a run and the closed event, which become
// visible together. It returns how many of the two are in the log.
func (l *Log) AppendEnd(e, closed spool.Event) (n int, err error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	events := [2]spool.Event{e, closed}
	for n < len(events) {
		if err = l.number(&events[n]); err == nil {
			events[n].Seq += spool.Seq(n)
			err = l.store(&events[n])
		}
		if err != nil {
			break
		}
		n++
	}
	if n > 0 {
		l.publish(events[:n]...)
	}
	return n, err
}

// Keeps reports whether the log keeps an event of that size in memory. If not,
// the caller of Append may reuse the event's Bytes.
func (l *Log) Keeps(size int) bool { return l.tier == nil || l.forget == 0 || size <= l.forget }

// Conclude makes an event visible without giving it to the tier. It is for the
// last events of a log whose tier has failed. It returns the event as readers
// see it; the caller may try to store it, and must not call Append any more.
func (l *Log) Conclude(e spool.Event) (spool.Event, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.number(&e); err != nil {
		return e, err
	}
	l.mu.Lock()
	l.pinned = true
	l.mu.Unlock()
	l.publish(e)
	return e, nil
}

// Adopt makes events visible that another process has appended to the tier: all
// up to last. The events themselves may be passed if the caller has them;
// those that do not continue the log are ignored and read from the tier.
func (l *Log) Adopt(last spool.Seq, events []spool.Event, sealed bool) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	known, _ := l.Last()
	i := slices.IndexFunc(events, func(e spool.Event) bool { return e.Seq == known+1 })
	if i >= 0 {
		n := i + 1
		for n < len(events) && events[n].Seq == events[n-1].Seq+1 {
			n++
		}
		l.publish(events[i:n]...) // together: readers wake once
	}
	l.reveal(last, sealed)
}

// Drop forgets the events in memory, which are read from the tier from now on. The tier
// must have them.
func (l *Log) Drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	last, _ := l.end.get()
	l.recent, l.bytes, l.first = nil, 0, last+1
	l.budget.giveBack(l.borrowed)
	l.borrowed = 0
}

// number gives an event the next seq, the run and a time. Callers hold
// l.appendMu.
func (l *Log) number(e *spool.Event) error {
	last, sealed := l.Last()
	if sealed {
		return ErrSealed
	}
	e.Run, e.Seq = l.run, last+1
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	// A wall clock may step back; the times of a log do not.
	e.Time = e.Time.Round(0)
	if e.Time.Before(l.lastTime) {
		e.Time = l.lastTime
	}
	l.lastTime = e.Time
	return nil
}

// store gives an event to the tier. Callers hold l.appendMu.
func (l *Log) store(e *spool.Event) error {
	if l.tier == nil {
		return nil
	}
	l.next = *e
	err := l.tier.Append(&l.next)
	l.next = spool.Event{}
	if err != nil {
		return fmt.Errorf("append event %d: %w", e.Seq, err)
	}
	return nil
}

// publish makes events visible and keeps them in memory. Callers hold
// l.appendMu.
func (l *Log) publish(events ...spool.Event) {
	l.mu.Lock()
	for _, e := range events {
		size := e.Size() + eventOverhead
		if n := len(l.recent); n == 0 || l.recent[n-1].full(l.memory) {
			l.recent = append(l.recent, &segment{first: e.Seq})
		}
		l.recent[len(l.recent)-1].add(e, size)
		l.bytes += size
		l.evict(e.Kind == spool.KindClosed)
	}
	newest := &events[len(events)-1]
	l.end.set(newest.Seq, newest.Kind == spool.KindClosed)
	l.mu.Unlock()
	l.waker.notify()
}

// reveal makes the events of the tier up to last visible. Callers hold
// l.appendMu.
func (l *Log) reveal(last spool.Seq, sealed bool) {
	l.mu.Lock()
	known, wasSealed := l.end.get()
	if last > known {
		known, l.first = last, last+1
		l.recent, l.bytes = nil, 0
	}
	sealed = wasSealed || sealed && known == last
	l.evict(sealed)
	l.end.set(known, sealed)
	l.mu.Unlock()
	l.waker.notify()
}

// evict drops the oldest segments above the memory bound. It keeps the newest
// segment, so that a reader that keeps up never reads the tier. Callers hold
// l.mu.
func (l *Log) evict(sealed bool) {
	if sealed { // few readers are left
		l.budget.giveBack(l.borrowed)
		l.borrowed = 0
	} else if over := l.bytes - l.memory - l.borrowed; over > 0 && l.borrowed < l.maxBorrowed() {
		l.borrowed += l.budget.borrow(over)
	}
	for l.bytes > l.memory+l.borrowed && len(l.recent) > 1 && !l.pinned {
		l.bytes -= l.recent[0].bytes
		l.recent[0] = nil
		l.recent = l.recent[1:]
		l.first = l.recent[0].first
	}
}
