package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/inspect"
)

var _ engine.Inspector = (*session)(nil)

const (
	// inspectTimeout limits how long the interpreter may take to answer a
	// question: it may call a method of the user, such as __dir__.
	inspectTimeout = 2 * time.Second
	// inspectAgain is after what time a question is interrupted again: code that
	// catches every exception takes an interrupt for one.
	inspectAgain = time.Second
	// inspectGrace is how long a question may go on after it was interrupted.
	// Then the interpreter is stopped.
	inspectGrace = 8 * time.Second
)

var (
	errInspectBusy    = fmt.Errorf("%w: a cell is running, or the interpreter is being prepared", spool.ErrBusy)
	errInspectTimeout = fmt.Errorf("%w: the interpreter did not answer within %v", spool.ErrBusy, inspectTimeout)
)

// question is a question about the state of the interpreter.
type question struct {
	data  json.RawMessage
	reply chan answered // holds one
}

// answered is the answer to a question, or an error.
type answered struct {
	answer json.RawMessage
	err    error
}

// finish answers the question. Only the first answer counts.
func (q *question) finish(a answered) {
	select {
	case q.reply <- a:
	default:
	}
}

// Inspect implements [engine.Inspector]. It never waits behind a cell: while one
// runs or waits, the error is [spool.ErrBusy].
func (s *session) Inspect(ctx context.Context, data json.RawMessage) (json.RawMessage, error) {
	if _, err := inspect.Decode(data); err != nil {
		return nil, err
	}
	if s.config.Fresh || s.config.Once || s.config.Limits.Fuel > 0 {
		return nil, fmt.Errorf("inspect: %w by a sandbox whose interpreter does not stay, or whose instructions are counted", spool.ErrUnsupported)
	}
	q := &question{data: data, reply: make(chan answered, 1)}
	s.mu.Lock()
	switch {
	case s.over || s.ending != nil:
		s.mu.Unlock()
		return nil, spool.ErrEnded
	case s.turns.Busy() || s.guest == nil:
		s.mu.Unlock()
		return nil, errInspectBusy
	}
	s.questions = append(s.questions, q)
	s.mu.Unlock()
	s.poke()
	select {
	case a := <-q.reply:
		return a.answer, a.err
	case <-s.done:
		return nil, spool.ErrEnded
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// answer asks the interpreter. One that does not answer in time is interrupted, so
// that the next cell can run; if it does not react, it is stopped.
func (s *session) answer(q *question) {
	s.mu.Lock()
	g := s.guest
	s.mu.Unlock()
	if g == nil {
		q.finish(answered{err: errInspectBusy})
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, inspectTimeout+inspectGrace)
	defer cancel()
	over := false // guarded by interrupting, as is late
	var late *time.Timer
	s.interrupting.Lock()
	late = time.AfterFunc(inspectTimeout, func() {
		q.finish(answered{err: errInspectTimeout})
		s.interrupting.Lock()
		defer s.interrupting.Unlock()
		if i, ok := g.(guest.Interrupter); ok && !over {
			_ = i.Interrupt() // else the context ends it
			late.Reset(inspectAgain)
		}
	})
	s.interrupting.Unlock()
	result, err := g.Run(ctx, guest.Script{Code: inspect.Source, Inspect: q.data}, inspectHost{})
	s.interrupting.Lock()
	over = true
	s.interrupting.Unlock()
	late.Stop()
	if result.Lost {
		_ = s.notice(0, spool.Notice{Code: NoticeStateLost, Text: "the interpreter was stopped: variables are lost, files are kept"})
	}
	q.finish(answerOf(&result, err))
}

// answerOf is the answer that a result has.
func answerOf(r *guest.Result, err error) answered {
	switch {
	case err != nil:
		return answered{err: fmt.Errorf("ask the interpreter: %w", err)}
	case r.Exception != nil:
		return answered{err: errors.New("ask the interpreter: " + r.Exception.Name + ": " + r.Exception.Message)}
	case r.Value == nil:
		return answered{err: errors.New("ask the interpreter: it ended without an answer")}
	}
	var a inspect.Answer
	if err := json.Unmarshal([]byte(*r.Value), &a); err != nil {
		return answered{err: fmt.Errorf("ask the interpreter: %w", err)}
	}
	a.Matches = a.Matches[:min(len(a.Matches), inspect.MaxMatches)]
	return answered{answer: encode(a)}
}

// inspectHost is what a question has beside the files: nothing.
type inspectHost struct{}

var _ guest.Host = inspectHost{}

func (inspectHost) Started(guest.Startup)                     {}
func (inspectHost) Write(guest.Stream, []byte)                {}
func (inspectHost) Read(context.Context, []byte) (int, error) { return 0, io.EOF }

func (inspectHost) Ask(context.Context, string, []byte) []byte {
	return guest.Reply{Error: &guest.ReplyError{Code: guest.CodeDenied, Message: "a completion asks for nothing"}}.Encode()
}
