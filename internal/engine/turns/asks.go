package turns

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/spool-run/spool"
)

// openAsk is an ask without an answer.
type openAsk[A any] struct {
	turn     spool.Seq // zero for one that belongs to no turn
	key      A
	deadline time.Time
	// awaited takes the answer to an ask of Await, and is closed when there is
	// none; nil for an ask of the engine.
	awaited chan spool.Answer
}

// Asked is an ask that is open.
type Asked[A any] struct {
	Seq spool.Seq
	Key A // the engine's own
}

// Ask logs a question. The event says which turn asks, and what else belongs to
// it; its kind and data are filled in. The key comes back with the answer.
//
// If the policy decides, the ask event carries the answer, the ask is never
// open, and the answer is returned for the engine to act on. An error says that
// the log takes no more, or [ErrOver]; the ask is then not open.
func (q *Queue[T, A]) Ask(e spool.Event, a spool.Ask, key A) (spool.Seq, *spool.Answer, error) {
	decided := q.decide(a)
	q.mu.Lock()
	defer q.mu.Unlock()
	if e.Turn != 0 && (q.running == nil || q.running.Seq != e.Turn) {
		return 0, nil, ErrOver
	}
	return q.put(e, a, decided, &openAsk[A]{key: key, deadline: a.Deadline})
}

// decide asks the policy, if there is one.
func (q *Queue[T, A]) decide(a spool.Ask) *spool.Answer {
	if q.opts.Decide != nil {
		if answer, ok := q.opts.Decide(a); ok {
			return &answer
		}
	}
	return nil
}

// put logs a question. Callers hold q.mu.
func (q *Queue[T, A]) put(e spool.Event, a spool.Ask, decided *spool.Answer, open *openAsk[A]) (spool.Seq, *spool.Answer, error) {
	e.Kind, e.Data = spool.KindAsk, nil
	a.Answer = decided
	seq, err := q.append(e, a)
	if err != nil {
		return 0, nil, err
	}
	if decided != nil {
		decided.Ask = seq
		return seq, decided, nil
	}
	open.turn = e.Turn
	q.asks[seq] = open
	if t := q.clock(e.Turn); t != nil {
		t.pause()
	}
	return seq, nil, nil
}

// Await logs a question of something outside of the engine, such as the proxy of a
// run, and waits for the answer, or the end of the context. The ask is of the turn
// that runs; [ErrOver] says that the turn ended first, or that the run did. The
// engine is not told of the answer.
func (q *Queue[T, A]) Await(ctx context.Context, a spool.Ask) (spool.Answer, error) {
	decided := q.decide(a)
	open := &openAsk[A]{awaited: make(chan spool.Answer, 1)}
	q.mu.Lock()
	var e spool.Event
	if q.running != nil {
		e.Turn = q.running.Seq
	}
	seq, decided, err := q.put(e, a, decided, open)
	q.mu.Unlock()
	switch {
	case err != nil:
		return spool.Answer{}, err
	case decided != nil:
		return *decided, nil
	}
	select {
	case answer, ok := <-open.awaited:
		if !ok {
			return answer, ErrOver
		}
		return answer, nil
	case <-ctx.Done():
		q.CloseAsk(seq, spool.Notice{Text: "the connection no longer waits for an answer"})
		return spool.Answer{}, ctx.Err()
	}
}

// ErrOver says that a turn that is over cannot ask.
var ErrOver = errors.New("the turn is over")

// clock returns the turn whose clock stands still while an ask of it is open, if
// it does. Callers hold q.mu.
func (q *Queue[T, A]) clock(turn spool.Seq) *Turn[T] {
	if t := q.running; t != nil && q.opts.AskStopsClock && t.Seq == turn {
		return t
	}
	return nil
}

// Answer takes the answer to an ask. It reports false if the ask is not open:
// then the answer came too late, and is to be ignored. That to an ask of Await is
// not for the engine either.
func (q *Queue[T, A]) Answer(a spool.Answer) (A, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	open, ok := q.asks[a.Ask]
	if !ok {
		var none A
		return none, false
	}
	if open.awaited != nil {
		open.awaited <- a
	}
	q.forget(a.Ask)
	return open.key, open.awaited == nil
}

// forget takes an ask out of those that are open. Callers hold q.mu.
func (q *Queue[T, A]) forget(seq spool.Seq) {
	open := q.asks[seq]
	if t := q.clock(open.turn); t != nil {
		t.resume()
	}
	if open.awaited != nil {
		close(open.awaited)
	}
	delete(q.asks, seq)
	q.answered = time.Now()
}

// Answered is when the last ask ceased to be open, or zero.
func (q *Queue[T, A]) Answered() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.answered
}

// CloseAsk logs that an ask is no longer open. The notice says why; its code and
// ask are filled in. It reports false if the ask is not open, or if an answer to
// it was logged first: then that answer is about to come, and counts.
func (q *Queue[T, A]) CloseAsk(seq spool.Seq, n spool.Notice) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closeAsk(seq, n)
}

func (q *Queue[T, A]) closeAsk(seq spool.Seq, n spool.Notice) bool {
	a, ok := q.asks[seq]
	if !ok {
		return false
	}
	n.Code, n.Ask = spool.NoticeAskClosed, seq
	if _, err := q.append(spool.Event{Kind: spool.KindNotice, Turn: a.turn}, n); errors.Is(err, spool.ErrNotAsked) {
		a.deadline = time.Time{}
		return false
	}
	q.forget(seq)
	return true
}

// CloseAsks closes every ask that is open, because what asked is gone. An
// answer that was logged first comes too late.
func (q *Queue[T, A]) CloseAsks(n spool.Notice) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, seq := range slices.Sorted(maps.Keys(q.asks)) {
		if !q.closeAsk(seq, n) {
			q.forget(seq)
		}
	}
}

// Asks is how many asks are open.
func (q *Queue[T, A]) Asks() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.asks)
}

// FindAsk returns an open ask of the engine whose key matches.
func (q *Queue[T, A]) FindAsk(match func(A) bool) (spool.Seq, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for seq, a := range q.asks {
		if a.awaited == nil && match(a.key) {
			return seq, true
		}
	}
	return 0, false
}

// Expired returns the asks whose time is up, oldest first. They are open until CloseAsk.
func (q *Queue[T, A]) Expired(now time.Time) []Asked[A] {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []Asked[A]
	for _, seq := range slices.Sorted(maps.Keys(q.asks)) {
		if a := q.asks[seq]; due(a.deadline, now) {
			list = append(list, Asked[A]{seq, a.key})
		}
	}
	return list
}

// TimedOut returns the turn that runs if its time is up, else nil.
func (q *Queue[T, A]) TimedOut(now time.Time) *Turn[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	if t := q.running; t != nil && due(t.deadline(), now) {
		return t
	}
	return nil
}

// Deadline is when the time of a turn or of an ask is up next, or zero.
func (q *Queue[T, A]) Deadline() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	var next time.Time
	if q.running != nil {
		next = q.running.deadline()
	}
	for _, a := range q.asks {
		if !a.deadline.IsZero() && (next.IsZero() || a.deadline.Before(next)) {
			next = a.deadline
		}
	}
	return next
}

func due(at, now time.Time) bool { return !at.IsZero() && !now.Before(at) }
