package kernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/fdpass"
	"github.com/spool-run/spool/internal/launch"
)

// forkRequest asks a run to fork its interpreter into the descriptors.
type forkRequest struct {
	files    []int
	message  dict
	deadline time.Time
	reply    chan forkReply // holds one

	interrupted bool // SIGINT was sent to end the fork; owned by the loop

	mu        sync.Mutex
	abandoned bool // the caller has stopped waiting and closed the descriptors
}

// abandon records that the caller has stopped waiting.
func (f *forkRequest) abandon() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.abandoned = true
}

// forkReply is the pid of the copy, or an error.
type forkReply struct {
	pid int
	err error
}

// forkLive starts an interpreter by forking that of another run.
func (e *Engine) forkLive(ctx context.Context, l *launchSpec) (*interpreter, error) {
	refuse := func(err error) error {
		return &spool.StartError{Reason: engine.StartOther, Hint: "fork a run between two cells, without threads, open connections or child processes", Err: fmt.Errorf("fork run %s: %w", l.cfg.Fork, err)}
	}
	e.mu.Lock()
	parent := e.byID[l.cfg.Fork]
	e.mu.Unlock()
	if parent == nil {
		return nil, refuse(spool.ErrNotFound)
	}
	if parent.launch.overlay != nil {
		return nil, refuse(errors.New("it works on an overlay, and two runs cannot"))
	}
	if parent.launch.isolated() {
		return nil, refuse(errors.New("it is isolated, and its copy would not be"))
	}
	group, err := e.launcher.Reserve(l.pids)
	if err != nil {
		return nil, refuse(err)
	}
	p, t, err := newInterpreter()
	if err != nil {
		group.Abandon()
		return nil, err
	}
	p.forked = true
	defer t.close()
	deadline := time.Now().Add(millisOr(l.cfg.StartTimeoutMs, DefaultStartTimeout))
	if err := parent.requestFork(ctx, p, t, group, l, deadline); err != nil {
		group.Abandon()
		p.closeFiles()
		p.closeMemoryGroup()
		return nil, refuse(err)
	}
	t.close()
	if err := p.waitReady(ctx, deadline); err != nil {
		err = fmt.Errorf("the copy was killed: %w", err)
		if said := p.discard(); said != "" {
			err = fmt.Errorf("%w: %s", err, said)
		}
		return nil, refuse(err)
	}
	return p, nil
}

// requestFork asks the interpreter of this run to fork and waits for the reply.
func (s *session) requestFork(ctx context.Context, p *interpreter, t *childFiles, group *launch.Reservation, l *launchSpec, deadline time.Time) error {
	m := l.init()
	m["t"] = "fork"
	s.engine.limitMemory(p, l, m)
	if l.sameDir {
		delete(m, "cwd") // the copy stays in the directory of the original
	}
	f := &forkRequest{
		files:   append([]int{t.out, t.err, t.ctl, s.engine.lifePipe[0], t.dump, group.Group()}, group.Tasks()...),
		message: m, deadline: deadline, reply: make(chan forkReply, 1),
	}
	if !s.post(request{fork: f}) {
		return spool.ErrEnded
	}
	timeout := time.NewTimer(time.Until(deadline))
	defer timeout.Stop()
	select {
	case r := <-f.reply:
		if r.err != nil {
			return r.err
		}
		tree, err := group.Adopt(r.pid)
		if err != nil {
			return err
		}
		p.tree = tree
		return nil
	case <-timeout.C:
		f.abandon()
		return errForkTimeout
	case <-ctx.Done():
		f.abandon()
		return context.Cause(ctx)
	}
}

var (
	errBusy        = errors.New("a cell is running")
	errForkTimeout = errors.New("the interpreter did not fork in time: a function registered with os.register_at_fork may not return")
)

// checkForkTimeout ends a fork that takes too long: a function that user code
// registered with os.register_at_fork may not return.
func (s *session) checkForkTimeout(now time.Time) {
	next := s.forkDeadline()
	if next.IsZero() || now.Before(next) {
		return
	}
	if f := s.forks[0]; !f.interrupted {
		f.interrupted = true
		s.signal(unix.SIGINT)
		return
	}
	s.notice(spool.Notice{Code: NoticeEscalated, Level: "warning", Text: "the interpreter did not return from its fork and was killed"})
	s.killInterpreter()
}

// forkDeadline is when tendFork has something to do, or zero.
func (s *session) forkDeadline() time.Time {
	if !s.forkSent || s.interp == nil || !s.interp.killed.IsZero() {
		return time.Time{}
	}
	f := s.forks[0]
	if f.interrupted {
		return f.deadline.Add(s.schedule.kill)
	}
	return f.deadline
}

// queueFork queues a fork request unless a cell runs.
func (s *session) queueFork(f *forkRequest) {
	switch {
	case s.turns.Busy():
		f.reply <- forkReply{err: errBusy}
	case s.interp == nil || s.shutdown != nil:
		f.reply <- forkReply{err: errExited}
	default:
		s.forks = append(s.forks, f)
	}
}

// sendFork sends the oldest fork request to the interpreter.
func (s *session) sendFork() {
	s.write()
	if len(s.outgoing) > 0 {
		return // the descriptors must go with the message that needs them
	}
	f := s.forks[0]
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.abandoned {
		s.forks = s.forks[1:]
		return
	}
	err := fdpass.Send(s.interp.ctl, appendFrame(nil, f.message), f.files...)
	if err != nil {
		s.forks = s.forks[1:]
		f.reply <- forkReply{err: fmt.Errorf("write to interpreter: %w", err)}
		return
	}
	s.forkSent = true
}

// handleForked handles the reply to the fork request that was sent.
func (s *session) handleForked(m dict) {
	if !s.forkSent || len(s.forks) == 0 {
		return
	}
	f := s.forks[0]
	s.forks, s.forkSent = s.forks[1:], false
	if why := text(m, "error"); why != "" {
		f.reply <- forkReply{err: errors.New(why)}
		return
	}
	pid := int(number(m, "pid"))
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.abandoned && pid > 1 { // our child, and not reaped: the pid is its own
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = unix.Wait4(pid, nil, 0, nil)
		return
	}
	f.reply <- forkReply{pid: pid}
}

// failForks replies to the waiting fork requests with an error.
func (s *session) failForks(why string) {
	for _, f := range s.forks {
		f.reply <- forkReply{err: errors.New(why)}
	}
	s.forks, s.forkSent = nil, false
}
