package kernel

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// session is one run: an interpreter and those that take its place. Its loop
// owns everything below the lock; the methods only leave requests for it.
type session struct {
	eng *Engine
	id  spool.RunID
	out engine.Sink

	done    chan struct{} // closed after the last append
	outcome spool.Outcome // valid once done is closed

	mu       sync.Mutex
	requests []request
	waiting  int // cells that were sent and have not begun
	pid      int
	group    string // its control group
	ended    bool
	kick     int // an eventfd that wakes the loop; closed when ended

	// Owned by the loop.
	plan   *launchSpec
	limits spool.Limits
	steps  schedule

	epfd  int
	wake  *os.File        // epfd in the runtime's poller, made when first parked
	conn  syscall.RawConn // of wake
	armed time.Time       // the deadline of wake

	py         *interpreter
	begun      time.Time
	active     time.Time // the last event of any kind
	idle       time.Time // since when nothing is asked of it
	turn       *turn
	queue      []*turn
	latest     spool.Seq   // of the turns that were sent
	early      []spool.Seq // turns to interrupt that were not sent yet, in order
	asks       map[spool.Seq]ask
	output     meter
	unsent     []byte // for the control channel
	starting   context.CancelFunc
	ending     *ending
	restarting bool
	last       *spool.ExitStatus // of the interpreter before
	lost       error             // why that is not known
	refused    bool              // the log takes no more
	forks      []*forkRequest
	forkSent   bool
	streams    [2]stream
}

// request is something for the loop to do. Exactly one of its fields is set,
// besides reply.
type request struct {
	input   *spool.Input
	control *spool.Control
	started *started
	fork    *forkRequest
	reply   chan error
}

// started is what came of starting an interpreter in the place of another.
type started struct {
	py  *interpreter
	err error
}

// turn is a cell.
type turn struct {
	seq     spool.Seq
	id      string
	cell    spool.Cell
	begun   time.Time
	paused  int           // reasons for its clock to stand still
	stopped time.Time     // since when it does
	lost    time.Duration // how long it stood still before

	stopping bool // somebody or something asked it to end
	endedBy  string
	asked    time.Time // when
	steps    schedule
	strength int // how many means were used
	limit    time.Duration
	failure  string // what it raised
	said     dict   // its end, which is in doubt
}

// ask is a question that the interpreter waits for.
type ask struct {
	number int64
	kind   string
	turn   spool.Seq
}

// ending is a run that is about to end.
type ending struct {
	at    time.Time // when it was asked to
	grace time.Duration
	step  int
}

func newSession(e *Engine, spec *spool.Spec, l *launchSpec, limits spool.Limits, p *interpreter, out engine.Sink) (*session, error) {
	now := time.Now()
	s := &session{
		eng: e, id: spec.ID, out: out, done: make(chan struct{}), pid: p.tree.Pid(), plan: l, limits: limits,
		steps: scheduleOf(&l.cfg), begun: now, active: now, idle: now, asks: make(map[spool.Seq]ask),
	}
	s.output.limits = limits
	var err error
	if s.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("create epoll: %w", err)
	}
	if s.kick, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		if err = s.watch(s.kick, kickIndex); err == nil {
			if err = s.adopt(p); err == nil {
				return s, nil
			}
		}
		_ = unix.Close(s.kick)
	}
	_ = unix.Close(s.epfd)
	return nil, err
}

// Pid is that of the interpreter, or zero while there is none.
func (s *session) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pid
}

// Wait returns how the run ended, after its last event.
func (s *session) Wait() spool.Outcome {
	<-s.done
	return s.outcome
}

// Takes says whether the run takes cells and answers.
func (s *session) Takes(in spool.Input) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch in.Kind {
	case spool.InputStdin, spool.InputEOF:
		return fmt.Errorf("a kernel asks for input: %w", spool.ErrInputClosed)
	case spool.InputCell:
		if s.waiting >= MaxQueued {
			return fmt.Errorf("%w: %d cells are waiting already", spool.ErrBusy, s.waiting)
		}
	case spool.InputAnswer:
	default:
		return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
	}
	if s.ended {
		return spool.ErrInputClosed
	}
	return nil
}

// Send leaves a cell or an answer for the loop.
func (s *session) Send(_ context.Context, in spool.Input) error {
	if err := s.Takes(in); err != nil {
		return err
	}
	if in.Kind == spool.InputCell {
		s.mu.Lock()
		s.waiting++
		s.mu.Unlock()
	}
	if !s.post(request{input: &in}) {
		return spool.ErrInputClosed
	}
	return nil
}

// Control interrupts, restarts or ends.
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

// post leaves a request for the loop. It reports false if there is no loop.
func (s *session) post(r request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return false
	}
	s.requests = append(s.requests, r)
	if len(s.requests) == 1 {
		_, _ = unix.Write(s.kick, one) // an eventfd takes it
	}
	return true
}

var one = []byte{1, 0, 0, 0, 0, 0, 0, 0}
