package turns

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// State is where a turn is in its life.
type State uint8

// The states of a turn, in order.
const (
	Queued   State = iota // accepted, and waiting to begin
	Running               // begun
	Stopping              // begun, and asked to end
	Over                  // its done event is in the log
)

// moves are the states that may follow each state.
var moves = [...][]State{
	Queued:   {Running, Over},
	Running:  {Stopping, Over},
	Stopping: {Over},
	Over:     {},
}

func (s State) String() string {
	return [...]string{"queued", "running", "stopping", "over"}[s]
}

// Turn is one turn of a run.
type Turn[T any] struct {
	Seq   spool.Seq // of the input that began it
	ID    string    // of that input
	Value T         // the engine's own; the queue does not look at it

	mu       *sync.Mutex // the queue's
	state    State
	waited   bool // behind another turn
	begun    time.Time
	limit    time.Duration
	pauses   int           // reasons for its clock to stand still
	paused   time.Time     // since when it stands still
	lost     time.Duration // how long it stood still before that
	reason   Reason
	stopping chan struct{} // closed when the turn is asked to end
}

// Reason is why a turn was asked to end.
type Reason struct {
	// By names the request or the limit, as [spool.Done.EndedBy] does.
	By string
	// Outcome is what the turn ends with, if the engine has no better
	// knowledge.
	Outcome spool.TurnOutcome
	// Text says more, for a person.
	Text string
	// Limit is the time limit that was reached, if one was.
	Limit time.Duration
	// At is when the turn was asked.
	At time.Time
}

// move changes the state. Callers hold t.mu and have checked what the move
// needs, so that a move that is not in the table is a mistake in this package.
func (t *Turn[T]) move(to State) {
	if !slices.Contains(moves[t.state], to) {
		panic(fmt.Sprintf("turns: turn %d cannot go from %v to %v", t.Seq, t.state, to))
	}
	t.state = to
}

// State returns where the turn is in its life.
func (t *Turn[T]) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// Waited reports whether another turn was running or waiting when this one was
// accepted.
func (t *Turn[T]) Waited() bool { return t.waited }

// Begun returns when the turn began to run, or zero.
func (t *Turn[T]) Begun() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

// Stop asks a turn that runs to end, and reports whether this is the first
// request to do so: only the first reason is kept. A turn that does not run is
// left alone.
func (t *Turn[T]) Stop(r Reason) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != Running {
		return false
	}
	if r.At.IsZero() {
		r.At = time.Now()
	}
	t.reason = r
	t.move(Stopping)
	close(t.stopping)
	return true
}

// Override replaces the reason of a turn that was asked to end: a person who
// ends the whole run outranks a limit. It does nothing to other turns.
func (t *Turn[T]) Override(r Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state == Stopping {
		if r.At.IsZero() {
			r.At = time.Now()
		}
		t.reason = r
	}
}

// Reason returns why the turn was asked to end. It reports false if it was not.
func (t *Turn[T]) Reason() (Reason, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.reason, t.reason != Reason{}
}

// Stopping is closed when the turn is asked to end.
func (t *Turn[T]) Stopping() <-chan struct{} { return t.stopping }

// Pause stops the clock of the turn until Resume was called as often.
func (t *Turn[T]) Pause() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pause()
}

func (t *Turn[T]) pause() {
	if t.pauses++; t.pauses == 1 {
		t.paused = time.Now()
	}
}

// Resume undoes one Pause.
func (t *Turn[T]) Resume() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resume()
}

func (t *Turn[T]) resume() {
	if t.pauses == 0 {
		return
	}
	if t.pauses--; t.pauses == 0 {
		t.lost += time.Since(t.paused)
	}
}

// Limit is how long the turn may run; zero means for ever.
func (t *Turn[T]) Limit() time.Duration { return t.limit }

// Deadline is when the time of a turn that runs is up. It is zero without a
// limit, while the clock stands still, and once the turn was asked to end.
func (t *Turn[T]) Deadline() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.deadline()
}

func (t *Turn[T]) deadline() time.Time {
	if t.state != Running || t.limit <= 0 || t.pauses > 0 {
		return time.Time{}
	}
	return t.begun.Add(t.limit + t.lost)
}
