package kernel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/inspect"
)

var _ engine.Inspector = (*session)(nil)

// inspectTimeout limits how long the interpreter may take to answer a question: it
// may call a method of the user, such as __dir__.
const inspectTimeout = 2 * time.Second

// inspection is a question for the interpreter. The loop owns it.
type inspection struct {
	question inspect.Question
	reply    chan inspected // holds one

	deadline    time.Time // zero until it was sent
	interrupted bool
	number      int64
}

// finish answers the question. Inspect reads the first answer only.
func (i *inspection) finish(r inspected) {
	select {
	case i.reply <- r:
	default:
	}
}

// inspected is the answer to a question, or an error.
type inspected struct {
	answer inspect.Answer
	err    error
}

// Inspect implements [engine.Inspector]. It never waits behind a cell: while one
// runs or waits, the error is [spool.ErrBusy].
func (s *session) Inspect(ctx context.Context, data json.RawMessage) (json.RawMessage, error) {
	q, err := inspect.Decode(data)
	if err != nil {
		return nil, err
	}
	i := &inspection{question: q, reply: make(chan inspected, 1)}
	if !s.post(request{inspection: i}) {
		return nil, spool.ErrEnded
	}
	select {
	case r := <-i.reply:
		if r.err != nil {
			return nil, r.err
		}
		return json.Marshal(r.answer)
	case <-s.done:
		return nil, spool.ErrEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

var (
	errInspectBusy    = fmt.Errorf("%w: a cell is running", spool.ErrBusy)
	errInspectNothing = fmt.Errorf("%w: the interpreter has ended; the next cell starts a new one", spool.ErrBusy)
	errInspectTimeout = fmt.Errorf("%w: the interpreter did not answer within %v", spool.ErrBusy, inspectTimeout)
)

// queueInspection queues a question unless a cell runs.
func (s *session) queueInspection(i *inspection) {
	switch {
	case s.shutdown != nil:
		i.finish(inspected{err: spool.ErrEnded})
	case s.turns.Busy():
		i.finish(inspected{err: errInspectBusy})
	case s.interp == nil || !s.interp.killed.IsZero():
		i.finish(inspected{err: errInspectNothing})
	default:
		s.inspections = append(s.inspections, i)
	}
}

// inspects reports whether the interpreter has a question, so that the next cell
// waits. It does not wait for a question that was interrupted in vain.
func (s *session) inspects() bool {
	return len(s.inspections) > 0 && !s.inspections[0].deadline.IsZero()
}

// sendInspection sends the oldest question to the interpreter.
func (s *session) sendInspection() {
	s.drainStreams() // what an attribute prints comes after what is in the pipes
	i := s.inspections[0]
	s.inspected++
	i.number, i.deadline = s.inspected, time.Now().Add(inspectTimeout)
	q := &i.question
	s.send(dict{"t": "inspect", "k": i.number, "code": inspect.Source, "q": dict{
		"op": q.Op, "code": q.Code, "cursor": int64(q.Cursor), "source": q.Source,
	}})
}

// handleInspected handles the answer to the question that was sent.
func (s *session) handleInspected(m dict) {
	if !s.inspects() || s.inspections[0].number != number(m, "k") {
		return // it was given up
	}
	i := s.inspections[0]
	s.inspections = s.inspections[1:]
	v, _ := m["v"].(dict)
	if why := text(v, "error"); why != "" || v == nil {
		i.finish(inspected{err: errors.New("ask the interpreter: " + why)})
		return
	}
	a := inspect.Answer{Text: truncateMiddle(text(v, "text")), Start: int(number(v, "start")), Status: text(v, "status"), Indent: text(v, "indent")}
	list, _ := v["matches"].([]any)
	for _, e := range list {
		if match, ok := e.(string); ok && len(a.Matches) < inspect.MaxMatches {
			a.Matches = append(a.Matches, match)
		}
	}
	i.finish(inspected{answer: a})
}

// inspectionDeadline is when checkInspection has something to do, or zero.
func (s *session) inspectionDeadline() time.Time {
	if !s.inspects() {
		return time.Time{}
	}
	return s.inspections[0].deadline
}

// checkInspection interrupts a question that takes too long. No cell was sent
// after it, so the signal cannot interrupt one. An interpreter that does not react
// is left alone: the next cell waits for it, and can be killed.
func (s *session) checkInspection(now time.Time) {
	if next := s.inspectionDeadline(); next.IsZero() || now.Before(next) {
		return
	}
	i := s.inspections[0]
	if !i.interrupted {
		i.interrupted, i.deadline = true, now.Add(s.schedule.secondInterrupt)
		i.finish(inspected{err: errInspectTimeout})
		s.signal(unix.SIGINT)
		return
	}
	s.inspections = s.inspections[1:]
}

// failInspections answers the questions of an interpreter that has ended.
func (s *session) failInspections() {
	for _, i := range s.inspections {
		i.finish(inspected{err: errInspectNothing})
	}
	s.inspections = nil
}
