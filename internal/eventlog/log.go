// Package eventlog is the log of one run: append-only, numbered without
// holes, replayable from any cursor. One owner appends; any number of readers
// hold cursors. A reader never has a queue of its own, so a slow, gone or
// late one costs the writer nothing.
//
// The newest events stay in memory up to a bound. Older ones are read back
// from a [Tier]; without one they are gone, and a reader that wanted them is
// told so by exactly one truncated event.
package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// ErrSealed is returned by Append once the closed event is in the log.
var ErrSealed = errors.New("log is closed")

// Tier is the durable copy of a log. The log calls Append from one goroutine
// at a time; Read may be called by anyone at any time.
type Tier interface {
	// Append stores an event. When it returns, a crash of this process
	// cannot lose it.
	Append(e *spool.Event) error
	// Read appends to dst the events after a cursor: at least one if there
	// is one, and no more than fit in maxBytes beyond that.
	Read(dst []spool.Event, after spool.Seq, maxBytes int) ([]spool.Event, error)
}

// DefaultMemory is how many bytes of events a log keeps in memory.
const DefaultMemory = 256 << 10

// eventOverhead is what an event costs in memory beside its payload.
const eventOverhead = 160

// Options configure a log.
type Options struct {
	Run    spool.RunID
	Tier   Tier             // nil keeps the log in memory only
	Memory int              // bytes kept in memory; zero means DefaultMemory
	Shared *Budget          // what may be kept beyond Memory; nil for nothing
	Forget int              // larger events are left to the tier at once; zero keeps all
	Last   spool.Seq        // where a log that exists already ends
	Sealed bool             // that log is complete
	Now    func() time.Time // nil means time.Now
}

// Log is the log of one run.
type Log struct {
	run    spool.RunID
	tier   Tier
	memory int
	shared *Budget
	forget int
	now    func() time.Time

	appendMu sync.Mutex  // serializes writers, held across the tier's write
	lastTime time.Time   // guarded by appendMu
	next     spool.Event // being appended; guarded by appendMu

	mu      sync.Mutex
	recent  []*segment // the newest events, [first, last]
	bytes   int        // what they cost
	lent    int        // how much of that is from the shared budget
	first   spool.Seq  // of the oldest of them; last+1 when there is none
	last    spool.Seq
	sealed  bool
	keep    bool          // some of the recent events may be nowhere else
	wake    chan struct{} // closed when there is news; nil while nobody waits
	leading bool          // one of those who wait listens to kick
	waiting int           // how many do
	watches []watch       // who else wants to know
	follows int           // how many follow
	crowd   *crowd        // those, if they are many

	// kick has room for one. The writer fills it and the leader of those
	// who wait wakes the others, so that an append costs the same however
	// many wait.
	kick chan struct{}
}

// New returns a log.
func New(o Options) *Log {
	l := &Log{run: o.Run, tier: o.Tier, memory: o.Memory, shared: o.Shared, forget: o.Forget, now: o.Now, first: o.Last + 1, last: o.Last, sealed: o.Sealed, kick: make(chan struct{}, 1)}
	if l.memory <= 0 {
		l.memory = DefaultMemory
	}
	if l.now == nil {
		l.now = time.Now
	}
	return l
}

// Append adds an event and returns its seq. It owns the event's Bytes and
// Data from then on, if it keeps them. It waits for the tier, never for a reader: when it
// returns nil, the event is durable and visible.
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

// AppendEnd is Append for the last event of a run and the closed event after
// it, which readers see at once. It returns how many of the two are in the log.
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

// Keeps reports whether the log keeps hold of an event of that size. If not,
// the appender may use its Bytes again.
func (l *Log) Keeps(size int) bool { return l.tier == nil || l.forget == 0 || size <= l.forget }

// Conclude makes an event visible that the tier refused, so that readers are
// told how the log ends. It returns the event as they see it: to make it
// durable too is up to the caller, who must not use Append any more.
func (l *Log) Conclude(e spool.Event) (spool.Event, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.number(&e); err != nil {
		return e, err
	}
	l.mu.Lock()
	l.keep = true
	l.mu.Unlock()
	l.publish(e)
	return e, nil
}

// number makes an event the next of the log. Callers hold l.appendMu.
func (l *Log) number(e *spool.Event) error {
	l.mu.Lock()
	sealed, seq := l.sealed, l.last+1
	l.mu.Unlock()
	if sealed {
		return ErrSealed
	}
	e.Run, e.Seq = l.run, seq
	if e.Time.IsZero() {
		e.Time = l.now()
	}
	// Wall clocks step back; a log does not.
	e.Time = e.Time.Round(0)
	if e.Time.Before(l.lastTime) {
		e.Time = l.lastTime
	}
	l.lastTime = e.Time
	return nil
}

// publish makes events visible. Callers hold l.appendMu.
func (l *Log) publish(events ...spool.Event) {
	l.mu.Lock()
	for _, e := range events {
		size := e.Size() + eventOverhead
		if n := len(l.recent); n == 0 || l.recent[n-1].full(l.memory) {
			l.recent = append(l.recent, &segment{first: e.Seq})
		}
		l.recent[len(l.recent)-1].add(e, size)
		l.bytes += size
		l.last = e.Seq
		l.sealed = e.Kind == spool.KindClosed
		l.evict()
	}
	l.tell()
}

// Adopt makes visible what somebody else, who owns the log, has appended to
// the tier: all up to last. The events may be given if they are at hand and
// follow what is known; else readers take them from the tier.
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
		l.publish(events[i:n]...) // at once, so that nobody wakes for each
	}
	l.reveal(last, sealed)
}

// reveal makes visible what is in the tier. Callers hold l.appendMu.
func (l *Log) reveal(last spool.Seq, sealed bool) {
	l.mu.Lock()
	if last > l.last {
		l.last, l.first = last, last+1
		l.recent, l.bytes = nil, 0
	}
	l.sealed = l.sealed || sealed && l.last >= last
	l.evict()
	l.tell()
}

// tell unlocks l.mu and lets everybody know that there is news.
func (l *Log) tell() {
	waiting := l.waiting > 0
	due := l.due()
	l.mu.Unlock()
	if waiting {
		l.rouse()
	}
	for _, w := range due {
		w.f()
	}
}

// rouse has the leader of those who wait wake all of them.
func (l *Log) rouse() {
	select {
	case l.kick <- struct{}{}:
	default: // it is on its way
	}
}

// evict drops the oldest segments beyond the memory bound. The newest always
// stays, so that a reader who keeps up never touches the tier.
func (l *Log) evict() {
	if l.sealed { // readers are few from now on
		l.shared.giveBack(l.lent)
		l.lent = 0
	} else if over := l.bytes - l.memory - l.lent; over > 0 && l.lent < l.mayBorrow() {
		l.lent += l.shared.borrow(over)
	}
	for l.bytes > l.memory+l.lent && len(l.recent) > 1 && !l.keep {
		l.bytes -= l.recent[0].bytes
		l.recent[0] = nil
		l.recent = l.recent[1:]
		l.first = l.recent[0].first
	}
}

// Last returns the highest seq assigned so far and whether it is final.
func (l *Log) Last() (seq spool.Seq, sealed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last, l.sealed
}

// Read returns the events after a cursor that exist now: at least one if there
// is one, and no more than fit in maxBytes beyond that. The slice is shared:
// nobody may change it.
func (l *Log) Read(after spool.Seq, maxBytes int) ([]spool.Event, error) {
	l.mu.Lock()
	switch {
	case after >= l.last:
		l.mu.Unlock()
		return nil, nil
	case after+1 >= l.first:
		parts := l.since(nil, after, maxBytes)
		l.mu.Unlock()
		return fit(parts, maxBytes), nil
	}
	gap := spool.Gap{From: after + 1, To: l.first - 1}
	shared := l.crowd.shares()
	l.mu.Unlock()

	if l.tier == nil {
		return []spool.Event{gapEvent(l.run, gap, l.now())}, nil
	}
	if shared != nil {
		// One of them reads, and the others have it from there: not only
		// does that save work, they also hold on to one copy.
		if events := shared.find(after + 1); events != nil {
			return fit([][]spool.Event{events}, maxBytes), nil
		}
		shared.fetch.Lock()
		defer shared.fetch.Unlock()
		if events := shared.find(after + 1); events != nil {
			return fit([][]spool.Event{events}, maxBytes), nil
		}
	}
	events, err := l.tier.Read(nil, after, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("read after %d: %w", after, err)
	}
	for i := range events {
		events[i].Run = l.run
	}
	if shared != nil {
		shared.keep(events)
	}
	return events, nil
}

// Recent is Read for somebody who only wants what is in memory: it returns
// nothing if some of it is not.
func (l *Log) Recent(after spool.Seq, maxBytes int) []spool.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after >= l.last || after+1 < l.first {
		return nil
	}
	return fit(l.since(nil, after, maxBytes), maxBytes)
}

// since appends to parts what is in memory after a cursor, up to the segment
// that has enough of it. Callers hold l.mu.
func (l *Log) since(parts [][]spool.Event, after spool.Seq, enough int) [][]spool.Event {
	at := sort.Search(len(l.recent), func(i int) bool { return l.recent[i].first > after+1 }) - 1
	for i, s := range l.recent[at:] {
		events := s.events
		if i == 0 {
			events = events[after+1-s.first:]
		}
		parts = append(parts, events)
		if i > 0 { // of the first one who knows how much
			enough -= s.bytes
		}
		if enough < 0 {
			break
		}
	}
	return parts
}

// gapEvent stands for events that are gone. Its seq is the last of them, so
// that a reader's cursor moves past the gap.
func gapEvent(run spool.RunID, gap spool.Gap, now time.Time) spool.Event {
	data, err := json.Marshal(gap)
	if err != nil { // two integers always encode
		panic(err)
	}
	return spool.Event{Run: run, Seq: gap.To, Time: now, Kind: spool.KindTruncated, Data: data}
}

// Wait returns once there is an event after the cursor, or the log is sealed,
// or ctx ends, which is the only error.
func (l *Log) Wait(ctx context.Context, after spool.Seq) error {
	for {
		l.mu.Lock()
		if l.last > after || l.sealed {
			l.mu.Unlock()
			return nil
		}
		wake, kick := l.join()
		l.waiting++
		l.mu.Unlock()
		var err error
		select {
		case <-wake:
		case <-kick:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		l.mu.Lock()
		l.waiting--
		l.mu.Unlock()
		if kick != nil {
			l.wakeAll() // also when leaving: somebody else must lead
		}
		if err != nil {
			return err
		}
	}
}

// join returns what somebody who waits listens to: wake, and for the leader
// kick. Callers hold l.mu.
func (l *Log) join() (wake, kick chan struct{}) {
	if l.crowd != nil {
		return l.crowd.join(), nil
	}
	if l.wake == nil {
		l.wake = make(chan struct{})
	}
	if !l.leading {
		l.leading = true
		kick = l.kick // a nil channel is never ready
	}
	return l.wake, kick
}

// wakeAll ends the leader's turn: all who wait look again, and the first of
// them leads.
func (l *Log) wakeAll() {
	l.mu.Lock()
	wake := l.wake
	l.wake, l.leading = nil, false
	moved := l.crowd != nil // they became one, and the kick was for them
	l.mu.Unlock()
	if wake != nil {
		close(wake)
	}
	if moved {
		l.rouse()
	}
}

// followPage is how much Follow takes out of the log at a time, and crowdPage
// how much each of a crowd does: those share what they take, so that it costs
// no more to take it less often.
const (
	followPage = 256 << 10
	crowdPage  = 2 << 20
)

// Follow yields every event after the cursor, those that exist and those to
// come, and ends after the closed event. An error ends it too.
func (l *Log) Follow(ctx context.Context, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		l.enter()
		defer l.leave()
		var parts [][]spool.Event
		for {
			clear(parts) // a reader that waits holds on to nothing
			if err := l.Wait(ctx, after); err != nil {
				yield(spool.Event{}, err)
				return
			}
			var err error
			var shared bool
			if parts, shared, err = l.take(parts[:0], after); err != nil {
				yield(spool.Event{}, err)
				return
			}
			if shared {
				// So that they come by the same places at about the
				// same time, and the writer gets its turn.
				runtime.Gosched()
			}
			for _, part := range parts {
				for i := range part {
					after = part[i].Seq
					if !yield(part[i], nil) || part[i].Kind == spool.KindClosed {
						return
					}
				}
			}
			if len(parts) == 0 { // sealed, and the cursor is at or past the end
				return
			}
		}
	}
}

// take appends to parts what a follower takes next, and reports whether it is
// one of a crowd. What is in memory is not copied.
func (l *Log) take(parts [][]spool.Event, after spool.Seq) (_ [][]spool.Event, shared bool, err error) {
	l.mu.Lock()
	size := followPage
	if shared = l.crowd != nil; shared {
		size = crowdPage
	}
	if after < l.last && after+1 >= l.first {
		parts = l.since(parts, after, maxLentCrowd)
		l.mu.Unlock()
		return parts, shared, nil
	}
	l.mu.Unlock()
	page, err := l.Read(after, size)
	if len(page) > 0 {
		parts = append(parts, page)
	}
	return parts, shared, err
}
