package sandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/turns"
	"github.com/spool-run/spool/python"
)

// session is one run. Its goroutine, in run, takes the turns one after the
// other and writes what is not output; the methods leave requests for it.
type session struct {
	eng     *Engine
	spec    *spool.Spec
	config  *python.SandboxConfig
	files   *files
	out     engine.Sink
	backend guest.Backend
	options guest.Options

	isolation *spool.Isolation // what the run has

	ready    chan struct{} // closed once a start may return
	readyErr error         // set before that
	readyOne sync.Once

	ctx    context.Context // ends with the run
	cancel context.CancelCauseFunc
	done   chan struct{} // closed after the last append
	wake   chan struct{} // has room for one: there is something to do

	outcome spool.Outcome // valid once done is closed

	account engine.Account // what the scripts used

	turns    *turns.Queue[*cell, chan spool.Answer]
	onlyCode atomic.Pointer[int] // of the script that was the only one, once it is over

	// interrupting is held while a script is interrupted and while a turn
	// ends, so that no other turn is interrupted in its place.
	interrupting sync.Mutex

	mu      sync.Mutex    // held before that of turns
	guest   guest.Context // nil until it is open, and after it was lost with the run
	version string        // of the interpreter, once it is prepared
	last    *turn         // the one that input belongs to
	held    *stdin        // input that came before any turn
	count   int           // of cells, as a person counts them
	ending  *end          // set once a stop or kill was requested
	renew   bool          // a new interpreter was asked for
	over    bool          // no input is taken any more

	questions []*question // that wait
}

// end says how a run is to end.
type end struct {
	killed bool
	failed error // the log or the back end failed
	code   int
}

func newSession(e *Engine, spec *spool.Spec, c *python.SandboxConfig, f *files, out engine.Sink) *session {
	s := &session{
		eng: e, spec: spec, config: c, files: f, out: out, held: newStdin(),
		ready: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.turns = turns.New(turns.Options[*cell, chan spool.Answer]{Append: out.Append, Max: MaxQueued, Complete: s.complete})
	return s
}

// Used implements [engine.Accountable].
func (s *session) Used() *spool.ProcessUse { return s.account.Used() }

// settle adds what the scripts of the guest used to the account, if it knows. Its
// interpreter may end with that.
func (s *session) settle() {
	s.mu.Lock()
	g := s.guest
	s.mu.Unlock()
	if a, ok := g.(guest.Accountable); ok {
		s.account.Add(a.Settle())
	}
}

// Pid returns zero: a sandbox has no process that callers may signal.
func (s *session) Pid() int { return 0 }

// Details implements [engine.Describer].
func (s *session) Details() json.RawMessage {
	d := python.Details{Interpreter: s.config.Backend, Queued: s.turns.Len(), Asks: s.turns.Asks(), Config: encode(shown(s.config))}
	if t := s.turns.Running(); t != nil {
		d.Turn = t.Seq
	}
	s.mu.Lock()
	d.Version = s.version
	s.mu.Unlock()
	return encode(d)
}

// Wait returns how the run ended, after its last event.
func (s *session) Wait() spool.Outcome {
	<-s.done
	return s.outcome
}

// begun waits until a start may return.
func (s *session) begun(ctx context.Context) error {
	timer := time.NewTimer(startWait)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-timer.C:
		s.readyOne.Do(func() { close(s.ready) })
		<-s.ready
	case <-ctx.Done():
		s.end(end{killed: true})
		<-s.done
		return &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
	}
	if s.readyErr != nil {
		<-s.done
		return startError(s.readyErr)
	}
	return nil
}

// progress writes how the preparation gets on. It takes long, so a start need
// not wait for it.
func (s *session) progress(p guest.Progress) {
	_ = s.notice(0, spool.Notice{Code: python.NoticePrepare, Level: "debug", Text: fmt.Sprintf("preparing the %s back end: %s", s.config.Backend, p.Step)})
	s.readyOne.Do(func() { close(s.ready) })
}

// run executes the session from its start to its end.
func (s *session) run() {
	defer close(s.done)
	refused := false
	prewarm, err := s.backend.Prepare(s.ctx, s.options.Setup)
	s.mu.Lock()
	s.version = prewarm.Version
	s.mu.Unlock()
	if err == nil {
		err = s.openGuest()
	}
	if err == nil && s.config.Metrics {
		err = s.metrics(0, prewarmMetrics(s.config.Backend, &prewarm))
	}
	if err != nil {
		s.readyOne.Do(func() {
			refused = true
			s.readyErr = err
			close(s.ready)
		})
		if !refused {
			s.end(end{failed: err})
		}
	}
	s.readyOne.Do(func() { close(s.ready) })
	for !refused {
		t, ending := s.next()
		if ending != nil {
			s.finish(*ending)
			break
		}
		s.take(t)
	}
	s.closeFiles(refused)
}

// closeFiles closes everything, in the order in which it was made.
func (s *session) closeFiles(refused bool) {
	s.mu.Lock()
	s.over = true
	g := s.guest
	s.guest = nil
	s.mu.Unlock()
	s.cancel(nil)
	if g != nil {
		_ = g.Close() // what it held is gone either way
	}
	_ = s.files.tree.Close()
	if refused {
		s.outcome = spool.Outcome{Kind: spool.Failed, Reason: s.readyErr.Error()}
	}
}

func (s *session) openGuest() error {
	g, err := s.backend.Open(s.ctx, s.options)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.guest = g
	s.mu.Unlock()
	return nil
}

// next waits for a turn or for the end of the run.
func (s *session) next() (*turn, *end) {
	for {
		s.logged()
		if code := s.onlyCode.Load(); code != nil {
			s.end(end{code: *code})
		}
		s.mu.Lock()
		switch {
		case s.ending != nil:
			ending := *s.ending
			s.mu.Unlock()
			return nil, &ending
		case s.renew:
			s.renew = false
			s.mu.Unlock()
			s.settle()
			s.mu.Lock()
			g := s.guest
			s.guest = nil
			s.mu.Unlock()
			if g != nil {
				_ = g.Close() // it was to go
			}
			if err := s.openGuest(); err != nil {
				s.end(end{failed: fmt.Errorf("restart: %w", err)})
			}
			continue
		}
		t := s.turns.Next()
		var q *question
		switch {
		case t != nil: // no question waits for a cell
			for _, q := range s.questions {
				q.finish(answered{err: errInspectBusy})
			}
			s.questions = nil
		case len(s.questions) > 0:
			q, s.questions = s.questions[0], s.questions[1:]
		}
		s.mu.Unlock()
		switch {
		case t != nil:
			return t, nil
		case q != nil:
			s.answer(q)
		default:
			<-s.wake
		}
	}
}

func (s *session) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// end asks the run to end. The first to ask says how.
func (s *session) end(how end) {
	s.mu.Lock()
	if s.ending == nil {
		s.ending = &how
	}
	t := s.turns.Running()
	s.mu.Unlock()
	if t != nil {
		t.Stop(killed)
	}
	if how.killed || how.failed != nil {
		s.cancel(errStopped)
	}
	s.poke()
}

// finish ends the turns that never began and writes how the run ended.
func (s *session) finish(how end) {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.turns.Shut()
	s.turns.Drop(spool.Done{Outcome: spool.TurnKilled, EndedBy: killed.By, Error: "the run ended before it began", ErrorClass: turns.ClassNotRun})
	s.reportChanges()
	s.settle()
	switch {
	case how.failed != nil:
		s.outcome = spool.Outcome{Kind: spool.Failed, Reason: how.failed.Error()}
	case how.killed:
		s.outcome = spool.Outcome{Kind: spool.Exited, Code: guest.ExitKilled, Signal: "SIGKILL"}
	default:
		s.outcome = spool.Outcome{Kind: spool.Exited, Code: how.code}
	}
	_ = s.append(s.outcome.Event())
}

// append writes an event. A log that takes no more ends the run.
func (s *session) append(e spool.Event) error {
	_, err := s.out.Append(e)
	if err != nil {
		s.end(end{failed: fmt.Errorf("write the log: %w", err)})
	}
	return err
}

// logged ends the run if the log has refused an event of a turn.
func (s *session) logged() {
	if err := s.turns.Err(); err != nil {
		s.end(end{failed: fmt.Errorf("write the log: %w", err)})
	}
}

func (s *session) notice(turn spool.Seq, n spool.Notice) error {
	return s.append(spool.Event{Kind: spool.KindNotice, Turn: turn, Data: encode(n)})
}

// Takes says whether the run takes such an input now.
func (s *session) Takes(in spool.Input) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.ending != nil {
		return spool.ErrInputClosed
	}
	switch in.Kind {
	case spool.InputCell:
		return s.turns.Takes()
	case spool.InputStdin, spool.InputEOF:
		if !s.spec.Stdin {
			return spool.ErrInputClosed
		}
	case spool.InputAnswer:
	default:
		return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
	}
	return nil
}

// Send delivers input. Only standard input may have to wait, for a script that
// leaves too much of it unread.
func (s *session) Send(ctx context.Context, in spool.Input) error {
	switch in.Kind {
	case spool.InputCell:
		return s.cell(in)
	case spool.InputStdin:
		return s.stdin().write(ctx, in.Bytes)
	case spool.InputEOF:
		s.stdin().end()
		return nil
	case spool.InputAnswer:
		var a spool.Answer
		if err := json.Unmarshal(in.Data, &a); err != nil {
			return fmt.Errorf("%w: answer: %w", spool.ErrInvalid, err)
		}
		if answered, ok := s.turns.Answer(a); ok {
			answered <- a // it has room
		}
		return nil
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// cell queues a turn.
func (s *session) cell(in spool.Input) error {
	c := new(cell)
	if err := json.Unmarshal(in.Data, &c.Cell); err != nil {
		c.bad = fmt.Errorf("%w: cell: %w", spool.ErrInvalid, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil {
		s.last.Value.stdin.end() // what comes now is the new one's
	}
	c.stdin, s.held = s.held, newStdin()
	if !s.spec.Stdin {
		c.stdin.end()
	}
	t, err := s.turns.Accept(in, c, wallLimit(&s.config.Limits, c.TimeoutMs))
	if err != nil {
		return err
	}
	s.last = t
	s.poke()
	return nil
}

// stdin is where standard input goes: to the last turn that was sent, or if
// that is over to the next.
func (s *session) stdin() *stdin {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.last.State() != turns.Over {
		return s.last.Value.stdin
	}
	return s.held
}

// encode encodes what always encodes.
func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage("null")
	}
	return b
}
