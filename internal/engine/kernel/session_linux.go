package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/turns"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/meter"
	"github.com/spool-run/spool/internal/reactor"
	"github.com/spool-run/spool/python"
)

// session is one run: an interpreter and its replacements. The holder of own owns the
// fields below it: the loop, except while it waits, or a sender that gives an idle
// interpreter its cell. Other goroutines leave requests for the loop, and cells
// in turns.
type session struct {
	engine *Engine
	id     spool.RunID
	out    engine.Sink

	isolation *spool.Isolation // what the run has; nil without a request
	hosts     isolate.AskFunc  // asks about hosts; nil if the run cannot

	done    chan struct{} // closed after the last append
	outcome spool.Outcome // valid once done is closed

	turns *turns.Queue[*cell, ask]

	account engine.Account // what its interpreters used

	mu       sync.Mutex
	requests []request
	pid      int
	python   [2]string // path and version of the interpreter
	group    string    // its control group
	ended    bool
	wakeFD   int // an eventfd that wakes the loop; closed when ended

	own    sync.Mutex
	parked bool      // the loop waits until wakeAt, or for an event
	wakeAt time.Time // zero for ever

	launch   *launchSpec
	limits   spool.Limits
	schedule schedule

	reactor reactor.Reactor

	interp      *interpreter
	started     time.Time
	idleSince   time.Time   // since when no turn runs or waits
	output      meter.Meter // the output of the turn, or between two turns
	outgoing    []byte      // messages for the control socket, not yet written
	starting    context.CancelFunc
	shutdown    *shutdown
	limit       string // the time limit that stopped the run, for its outcome
	restarting  bool
	lastOutcome *spool.Outcome // of the previous interpreter; nil if unknown
	waitErr     error          // why lastOutcome is unknown
	logClosed   bool           // the log does not accept events any more
	forks       []*forkRequest
	forkSent    bool
	inspections []*inspection // the first one is with the interpreter if it has a deadline
	inspected   int64         // questions that were sent
	streams     [2]stream
	trace       trace
}

// request is a request to the loop. Besides reply, exactly one field is set.
type request struct {
	answer      *spool.Answer
	control     *spool.Control
	replacement *replacement
	fork        *forkRequest
	inspection  *inspection
	reply       chan error
}

// replacement is the result of startReplacement.
type replacement struct {
	interp *interpreter
	err    error
}

// turn is a cell and its state.
type turn = turns.Turn[*cell]

// cell is the value of a turn: the code, and how far the engine went to stop it.
type cell struct {
	spool.Cell

	stopRequested time.Time // when the schedule began
	schedule      schedule
	stopLevel     int    // an index of stopMethods
	failure       string // the exception, as text
	pendingDone   dict   // its done message, until the interpreter shows that it is alive
}

// ask is an ask that the interpreter waits for.
type ask struct {
	number int64
	kind   string
	secret bool // the answer is
}

// shutdown is the progress of ending a run.
type shutdown struct {
	requested time.Time // when the end was requested
	grace     time.Duration
	step      int
}

func newSession(e *Engine, spec *spool.Spec, l *launchSpec, limits spool.Limits, p *interpreter, out engine.Sink) (*session, error) {
	now := time.Now()
	s := &session{
		engine: e, id: spec.ID, out: out, done: make(chan struct{}), pid: p.tree.Pid(), launch: l, limits: limits,
		schedule: scheduleOf(&l.cfg), started: now, idleSince: now,
		turns: turns.New(turns.Options[*cell, ask]{Append: out.Append, Max: MaxQueued, AskStopsClock: true}),
	}
	if p.lease != nil && p.lease.Isolation() != nil {
		l.isolation = p.lease.Isolation()
	}
	s.isolation = l.isolation
	if s.isolation != nil && s.isolation.AskHosts {
		s.hosts = isolate.AskFunc(s.askHost).Once()
	}
	s.output.Reset(&s.limits)
	if err := s.trace.open(l.cfg.Trace, l.cwd); err != nil {
		return nil, invalid(err)
	}
	var err error
	if s.wakeFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		s.trace.close()
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	s.reactor.Init(e.poller)
	s.reactor.Add(s.wakeFD, wakeIndex)
	s.adopt(p)
	return s, nil
}

// Pid returns the process id of the interpreter, or zero while there is none.
func (s *session) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Used implements [engine.Accountable].
func (s *session) Used() *spool.ProcessUse { return s.account.Used() }

// Details implements [engine.Describer].
func (s *session) Details() json.RawMessage {
	s.mu.Lock()
	d := python.Details{Interpreter: s.python[0], Version: s.python[1], Queued: s.turns.Len(), Asks: s.turns.Asks()}
	s.mu.Unlock()
	if t := s.turns.Running(); t != nil {
		d.Turn = t.Seq
	}
	d.Config = encode(effective(s.launch.cfg))
	return encode(d)
}

// Wait returns the outcome of the run, after its last event.
func (s *session) Wait() spool.Outcome {
	<-s.done
	return s.outcome
}

// Takes reports whether the run accepts cells and answers.
func (s *session) Takes(in spool.Input) error {
	switch in.Kind {
	case spool.InputStdin, spool.InputEOF:
		return fmt.Errorf("a kernel has no standard input; it asks for input: %w", spool.ErrInputClosed)
	case spool.InputCell:
		return s.turns.Takes()
	case spool.InputAnswer:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended {
			return spool.ErrInputClosed
		}
		return nil
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// Send queues a cell, or posts an answer to the loop.
func (s *session) Send(_ context.Context, in spool.Input) error {
	switch in.Kind {
	case spool.InputCell:
		c := new(cell)
		bad := json.Unmarshal(in.Data, &c.Cell)
		t, err := s.turns.Accept(in, c, millisOr(c.TimeoutMs, millisOr(s.launch.cfg.CellTimeoutMs, 0)))
		if err != nil {
			return err
		}
		if bad != nil {
			s.turns.Finish(t, spool.Done{Outcome: spool.TurnError, Error: "decode cell: " + bad.Error(), ErrorClass: "invalid"})
		}
		if !s.sendCell() {
			s.wake()
		}
		return nil
	case spool.InputAnswer:
		a := new(spool.Answer)
		if err := json.Unmarshal(in.Data, a); err != nil {
			return nil // the host has checked it
		}
		if !s.post(request{answer: a}) {
			return spool.ErrInputClosed
		}
		return nil
	}
	return s.Takes(in)
}

// sendCell gives the oldest cell to the interpreter if nothing else is under way,
// which saves the time to wake the loop. It reports false if the loop has to look
// at the cell.
func (s *session) sendCell() bool {
	if !s.own.TryLock() {
		return false
	}
	defer s.own.Unlock()
	if s.interp == nil || s.turns.Err() != nil {
		return false
	}
	s.startNext()
	s.write()
	if !s.parked {
		return true // it looks at the timers soon
	}
	next := s.nextTimer()
	return next.IsZero() || !s.wakeAt.IsZero() && !next.Before(s.wakeAt)
}

// wake wakes the loop.
func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_, _ = unix.Write(s.wakeFD, eventfdOne) // writing 1 to an eventfd does not block
	}
}

// Control interrupts a turn, or restarts or ends the interpreter.
func (s *session) Control(ctx context.Context, c spool.Control) error {
	ending := false
	switch c.Op {
	case spool.ControlStop, spool.ControlKill:
		ending = true
	case spool.ControlInterrupt, spool.ControlSignal, spool.ControlRestart:
	default:
		return fmt.Errorf("control %q: %w", c.Op, spool.ErrUnsupported)
	}
	reply := make(chan error, 1)
	if s.post(request{control: &c, reply: reply}) {
		select {
		case err := <-reply:
			return err
		case <-s.done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if ending {
		return nil
	}
	return spool.ErrEnded
}

// post adds a request for the loop. It returns false if the loop has ended.
func (s *session) post(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.requests = append(s.requests, r)
	if len(s.requests) == 1 {
		_, _ = unix.Write(s.wakeFD, eventfdOne) // writing 1 to an eventfd does not block
	}
	return true
}

var eventfdOne = []byte{1, 0, 0, 0, 0, 0, 0, 0}
