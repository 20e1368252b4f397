// Package turns holds the life of the turns of one run, once for every engine
// that has turns: kernel, sandbox and agent.
//
// A turn begins as an input that the host accepted and logged. From there it
// takes one way:
//
//	accepted → queued → running → stopping → over
//
// A turn may skip states but never goes back, and it becomes over exactly once,
// with exactly one done event. [Queue] holds all turns of a run, the questions
// they ask, and the controls that arrive before their turn does. All methods
// may be called from any goroutine; one mutex guards all state, and the events
// that change it (ask, the notice that closes an ask, done) are appended while
// that mutex is held, so that the log and the state never differ.
//
// # How an engine uses it
//
// [engine.Session.Takes] asks [Queue.Takes]. [engine.Session.Send] decodes the
// input and calls [Queue.Accept], then wakes the goroutine that executes turns.
// That goroutine calls [Queue.Next] when it can execute a turn, and
// [Queue.Finish] when the turn has ended. A prompt that joins a running turn, or
// is refused, goes from Accept to Finish and never runs.
//
// [engine.Session.Control] passes every control to [Queue.Control] and acts only
// on what comes back: on the running turn, on the run as a whole, or not at all,
// because the turn is over, was cancelled while it waited, or has not arrived
// yet. A control for a turn that has not arrived is kept for it. The call comes
// before the session's Control returns, or an interrupt could meet a turn that
// was sent after it. An engine that acts later, in a loop of its own, checks then
// that the turn still runs.
//
// To end a running turn early, for any reason (a person, a timeout, a budget, a
// stall, the end of the run), the engine calls [Turn.Stop]. The first reason is
// the one that [Turn.Reason] returns. Which means follow, and when, is the
// engine's own.
//
// [Queue.Ask] puts a question. The policy of the run decides first: then the ask
// event carries the answer, is never open, and the engine gets the answer at
// once. Otherwise the ask is open until [Queue.Answer], [Queue.CloseAsk], or the
// done event of its turn. An engine that closes an ask learns from CloseAsk
// whether an answer was logged before; then that answer counts, and is on its
// way. [Queue.Await] puts a question for something outside of the engine, which gets
// the answer itself.
//
// [Queue.Deadline] says when to look at the clock next: [Queue.TimedOut] then
// returns the turn whose time is up, and [Queue.Expired] the asks whose
// deadline passed.
//
// When the run ends, the engine calls [Queue.Shut], finishes the turn that runs,
// and calls [Queue.Drop] for those that never began.
package turns

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// Options configure a [Queue]. T is what an engine keeps with a turn, A what it
// keeps with an ask.
type Options[T, A any] struct {
	// Append writes to the log. It must not call the queue.
	Append func(spool.Event) (spool.Seq, error)
	// Max is how many turns may wait; zero means any number.
	Max int
	// Decide is the policy of the run, asked before a question is put to
	// anybody. It may be nil. It must not call the queue.
	Decide func(spool.Ask) (spool.Answer, bool)
	// Complete adds what an engine has to say to each done event, also to
	// those of turns that never began. It may be nil. It must not call the
	// queue, and runs in the goroutine of any caller.
	Complete func(*Turn[T], *spool.Done)
	// AskStopsClock has the time limit of a turn pause while one of its asks
	// is open.
	AskStopsClock bool
}

// Queue holds the turns of one run.
type Queue[T, A any] struct {
	opts Options[T, A]

	mu      sync.Mutex
	queued  []*Turn[T]
	running *Turn[T]
	latest  spool.Seq // of the turns that were accepted
	early   map[spool.Seq]cancellation
	asks    map[spool.Seq]*openAsk[A]
	// answered is when the last ask ceased to be open.
	answered time.Time
	shut     bool
	err      error // the log takes no more
}

// New returns an empty queue.
func New[T, A any](o Options[T, A]) *Queue[T, A] {
	return &Queue[T, A]{
		opts:  o,
		early: make(map[spool.Seq]cancellation),
		asks:  make(map[spool.Seq]*openAsk[A]),
	}
}

// Takes says whether a turn would be accepted now: [spool.ErrInputClosed] after
// Shut, [spool.ErrBusy] if too many wait.
func (q *Queue[T, A]) Takes() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takes()
}

func (q *Queue[T, A]) takes() error {
	switch {
	case q.shut:
		return spool.ErrInputClosed
	case q.opts.Max > 0 && len(q.queued) >= q.opts.Max:
		return fmt.Errorf("%w: %d turns wait", spool.ErrBusy, len(q.queued))
	}
	return nil
}

// Accept queues the turn that a logged input begins. The limit is how long it
// may run; zero means for ever. A control that was kept for the turn cancels it
// at once: it is over when Accept returns. An error says that the run takes no
// more turns; the limit on how many wait is for Takes alone, since the input is
// in the log by now.
func (q *Queue[T, A]) Accept(in spool.Input, value T, limit time.Duration) (*Turn[T], error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut {
		return nil, spool.ErrInputClosed
	}
	t := &Turn[T]{Seq: in.Seq, ID: in.ID, Value: value, mu: &q.mu, state: Queued, limit: limit, stopping: make(chan struct{}), waited: q.running != nil || len(q.queued) > 0}
	q.queued = append(q.queued, t)
	q.latest = max(q.latest, t.Seq)
	c, cancelled := q.early[t.Seq]
	for seq := range q.early {
		if seq <= t.Seq {
			delete(q.early, seq)
		}
	}
	if cancelled {
		q.finish(t, c.done())
	}
	return t, nil
}

// Next begins the oldest turn that waits. It returns nil if there is none, or if
// one runs.
func (q *Queue[T, A]) Next() *Turn[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running != nil || len(q.queued) == 0 {
		return nil
	}
	t := q.queued[0]
	q.remove(t)
	t.move(Running)
	t.begun = time.Now()
	q.running = t
	return t
}

// Running returns the turn that runs, or nil.
func (q *Queue[T, A]) Running() *Turn[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running
}

// First returns the oldest turn that waits, or nil.
func (q *Queue[T, A]) First() *Turn[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queued) == 0 {
		return nil
	}
	return q.queued[0]
}

// Len is how many turns wait, without the one that runs.
func (q *Queue[T, A]) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queued)
}

// Busy reports whether a turn runs or waits.
func (q *Queue[T, A]) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running != nil || len(q.queued) > 0
}

// Finish ends a turn and logs how. What the turn asked is closed by that. It
// reports false, and does nothing, if the turn is over already. ID and
// DurationMs are filled in.
func (q *Queue[T, A]) Finish(t *Turn[T], d spool.Done) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.finish(t, d)
}

// finish ends a turn. Callers hold q.mu.
func (q *Queue[T, A]) finish(t *Turn[T], d spool.Done) bool {
	if t.state == Over {
		return false
	}
	if q.running == t {
		q.running = nil
	} else {
		q.remove(t)
	}
	t.move(Over)
	for seq, a := range q.asks {
		if a.turn == t.Seq {
			q.forget(seq)
		}
	}
	d.ID = t.ID
	if !t.begun.IsZero() && d.DurationMs == 0 {
		d.DurationMs = time.Since(t.begun).Milliseconds()
	}
	if q.opts.Complete != nil {
		q.opts.Complete(t, &d)
	}
	_, _ = q.append(spool.Event{Kind: spool.KindDone, Turn: t.Seq}, d) // kept in q.err
	return true
}

// remove takes a turn out of those that wait. Callers hold q.mu.
func (q *Queue[T, A]) remove(t *Turn[T]) {
	for i := range q.queued {
		if q.queued[i] == t {
			copy(q.queued[i:], q.queued[i+1:])
			q.queued[len(q.queued)-1] = nil
			q.queued = q.queued[:len(q.queued)-1]
			return
		}
	}
}

// Latest returns the seq of the newest turn that was accepted, or zero.
func (q *Queue[T, A]) Latest() spool.Seq {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.latest
}

// Drop ends all turns that wait, oldest first. The one that runs is not
// touched.
func (q *Queue[T, A]) Drop(d spool.Done) { q.DropThrough(math.MaxUint64, d) }

// DropThrough is Drop for turns up to and including that seq. An engine whose
// interpreter died takes [Queue.Latest] before it logs the death, and drops the
// turns up to there: a turn that a client sends because it saw the death in the
// log is meant for the next interpreter.
func (q *Queue[T, A]) DropThrough(last spool.Seq, d spool.Done) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queued) > 0 && q.queued[0].Seq <= last {
		q.finish(q.queued[0], d)
	}
}

// Shut refuses further turns. Those that were accepted go on.
func (q *Queue[T, A]) Shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut = true
}

// Err returns why the log takes no more, if it refused an event. The engine
// should then end the run.
func (q *Queue[T, A]) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// append logs an event with a payload. After an error nothing more is written.
// Callers hold q.mu.
func (q *Queue[T, A]) append(e spool.Event, payload any) (spool.Seq, error) {
	if q.err != nil {
		return 0, q.err
	}
	if e.Data == nil {
		data, err := json.Marshal(payload)
		if err != nil { // a raw message that is not JSON
			return 0, fmt.Errorf("encode %s: %w", e.Kind, err)
		}
		e.Data = data
	}
	seq, err := q.opts.Append(e)
	if err != nil && !errors.Is(err, spool.ErrNotAsked) {
		q.err = err
	}
	return seq, err
}
