package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/reactor"
)

// session is one process. Only its pump appends to the log, and what resizes the
// terminal; the other methods here leave requests for the pump.
type session struct {
	engine *Engine
	tree   *launch.Tree
	limits spool.Limits
	input  input
	pump   *pump

	lease     *isolate.Lease   // nil if the process is not isolated
	isolation *spool.Isolation // what it is kept from; nil without a request
	network   *isolate.Network // its proxy; nil without one
	hostAsks  *hostAsks        // its asks about hosts; nil if it does not ask
	overlay   bool             // it works on a view of its directory

	account engine.Account // what it used

	reactor reactor.Reactor // the pump's; a request wakes it
	done    chan struct{}   // closed after the last append, with mu held
	outcome spool.Outcome   // valid once done is closed

	resizing sync.Mutex // held while the terminal gets a size and the log says so
	size     spool.Size // of the terminal, as the log says; guarded by resizing

	mu          sync.Mutex
	onEnd       func()     // called when done is closed; nil if nobody asked
	actual      spool.Size // of the terminal, when it was last known
	ended       bool
	notices     []spool.Notice // to be appended
	killAt      time.Time      // when a stop becomes a kill; zero without a stop
	forceAt     time.Time      // when open streams are closed; zero without a kill
	kills       int            // under way; the run ends after their notices
	escapeNoted bool           // the notice about escaped processes was added
	straysNoted bool           // the log says that processes left the control group
}

// Pid returns the process id of the leader.
func (s *session) Pid() int { return s.tree.Pid() }

// Isolation implements [engine.Isolated].
func (s *session) Isolation() *spool.Isolation { return s.isolation }

// Used implements [engine.Accountable].
func (s *session) Used() *spool.ProcessUse { return s.account.Used() }

// Wait returns the outcome of the process, after its last event.
func (s *session) Wait() spool.Outcome {
	<-s.done
	return s.outcome
}

// OnEnd implements [engine.Ender].
func (s *session) OnEnd(f func()) {
	s.mu.Lock()
	s.onEnd = f
	select {
	case <-s.done:
	default:
		f = nil // finish calls it
	}
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

// Takes reports whether standard input is open.
func (s *session) Takes(in spool.Input) error {
	switch in.Kind {
	case spool.InputStdin, spool.InputEOF:
		return s.input.checkOpen()
	case spool.InputAnswer:
		if s.hostAsks != nil {
			return nil
		}
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// Send writes to standard input.
func (s *session) Send(ctx context.Context, in spool.Input) error {
	switch in.Kind {
	case spool.InputStdin:
		return s.input.write(ctx, in.Bytes)
	case spool.InputEOF:
		return s.input.sendEOF(ctx)
	case spool.InputAnswer:
		if s.hostAsks != nil {
			return s.hostAsks.answer(in)
		}
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// Control signals, resizes or ends the process.
func (s *session) Control(ctx context.Context, c spool.Control) error {
	switch c.Op {
	case spool.ControlInterrupt:
		return s.interrupt()
	case spool.ControlSignal:
		sig, err := parseSignal(c.Signal)
		if err != nil {
			return err
		}
		return s.signal(sig)
	case spool.ControlResize:
		return s.resize(c.Size, c.By)
	case spool.ControlStop:
		grace := s.limits.Grace
		if c.Grace > 0 {
			grace = c.Grace
		}
		return s.stop(grace)
	case spool.ControlKill:
		return s.kill()
	}
	return fmt.Errorf("control %q: %w", c.Op, spool.ErrUnsupported)
}

// interrupt does what Ctrl-C does: on a terminal it signals the foreground process
// group, which a shell may have set.
func (s *session) interrupt() error {
	if s.input.tty {
		if ok, err := s.tree.SignalForeground(unix.SIGINT); ok {
			return ended(err)
		}
		err := s.input.ioctl(func(fd int) error {
			return unix.IoctlSetInt(fd, unix.TIOCSIG, int(unix.SIGINT))
		})
		if err == nil || errors.Is(err, spool.ErrEnded) {
			return err
		}
	}
	return s.signal(unix.SIGINT)
}

func (s *session) signal(sig unix.Signal) error {
	return ended(s.tree.SignalGroup(sig))
}

// ended returns the error of a signal, as the users of a session know it.
func ended(err error) error {
	if errors.Is(err, os.ErrProcessDone) {
		return spool.ErrEnded
	}
	return err
}

// resize sets the size of the terminal and, if it is another one, appends a resized
// event.
func (s *session) resize(size spool.Size, by string) error {
	if !s.input.tty {
		return fmt.Errorf("resize: the process has no terminal: %w", spool.ErrUnsupported)
	}
	if size.Rows == 0 || size.Cols == 0 {
		return fmt.Errorf("resize to %d rows and %d columns: %w", size.Rows, size.Cols, spool.ErrInvalid)
	}
	s.resizing.Lock()
	defer s.resizing.Unlock()
	if err := s.input.ioctl(func(fd int) error { return setSize(fd, size) }); err != nil {
		return err
	}
	s.mu.Lock()
	s.actual = size
	s.mu.Unlock()
	if size == s.size {
		return nil
	}
	data, err := json.Marshal(spool.Resized{Size: size, Was: s.size, By: by})
	if err != nil {
		return fmt.Errorf("resize: %w", err)
	}
	if _, err := s.pump.out.Append(spool.Event{Kind: spool.KindResized, Data: data}); err != nil {
		return nil // the log is complete: the run has just ended
	}
	s.size = size
	return nil
}

// Details returns the size of the terminal, if the process has one.
func (s *session) Details() json.RawMessage {
	if !s.input.tty {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.input.ioctl(func(fd int) error { // after the end it fails, and the last size stays
		w, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
		if err == nil {
			s.actual = spool.Size{Rows: w.Row, Cols: w.Col}
		}
		return err
	})
	return fmt.Appendf(nil, `{"terminal":{"rows":%d,"cols":%d}}`, s.actual.Rows, s.actual.Cols)
}

// stop sends SIGTERM to the process group. After the grace the pump kills the
// tree.
func (s *session) stop(grace time.Duration) error {
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return nil
	}
	first := s.killAt.IsZero()
	if at := time.Now().Add(grace); first || at.Before(s.killAt) {
		s.killAt = at
	}
	s.mu.Unlock()
	var err error
	if first {
		err = s.tree.SignalGroup(unix.SIGTERM)
		if errors.Is(err, os.ErrProcessDone) { // only background children are left
			err = s.tree.SignalAll(unix.SIGTERM)
		}
	}
	s.reactor.Wake()
	return err
}

// kill kills the whole tree.
func (s *session) kill() error {
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if ended {
		return nil
	}
	members, _ := s.tree.Count() // for the notice only
	s.mu.Lock()
	s.kills++
	now := time.Now()
	if s.killAt.IsZero() {
		s.killAt = now
	}
	first := s.forceAt.IsZero()
	if first {
		s.forceAt = now.Add(killTime)
	}
	if n := members.Escaped; n > 0 && !s.escapeNoted {
		s.escapeNoted = true
		s.notices = append(s.notices, spool.Notice{Code: NoticeTreeKill, Text: escapeText(n, s.engine.Guarantees().Kill)})
	}
	s.mu.Unlock()
	err := s.tree.Kill()
	if first { // a large tree takes seconds on a busy machine
		s.mu.Lock()
		s.forceAt = time.Now().Add(s.engine.forceAfter)
		s.mu.Unlock()
	}
	if n := s.tree.Strays(); n > 0 {
		s.noteStrays(n)
	}
	if err != nil {
		s.addNotice(NoticeKillFailed, err.Error())
	}
	s.mu.Lock()
	s.kills--
	s.mu.Unlock()
	s.reactor.Wake()
	return err
}

// noteStrays adds one notice about processes that left the control group.
func (s *session) noteStrays(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.straysNoted {
		return
	}
	s.straysNoted = true
	text := "1 process had left the control group; killed by its pidfd"
	if n > 1 {
		text = fmt.Sprintf("%d processes had left the control group; killed by their pidfds", n)
	}
	s.notices = append(s.notices, spool.Notice{Code: NoticeTreeKill, Text: text})
}

func escapeText(n int, mechanism string) string {
	if n == 1 {
		return "1 process had left the process group; ended by " + mechanism
	}
	return fmt.Sprintf("%d processes had left the process group; ended by %s", n, mechanism)
}

// addNotice leaves a notice for the pump to append.
func (s *session) addNotice(code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices = append(s.notices, spool.Notice{Code: code, Text: text})
}

// requests are what other goroutines want of the pump.
type requests struct {
	notices []spool.Notice
	killAt  time.Time
	forceAt time.Time
	killing bool // a kill is under way and may add notices
}

// takeRequests returns the requests. It removes the notices and keeps the times.
func (s *session) takeRequests() requests {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := requests{notices: s.notices, killAt: s.killAt, forceAt: s.forceAt, killing: s.kills > 0}
	s.notices = nil
	return r
}

// endWorkspace ends what the process left running: the view that it has of its
// directory ends with the run.
func (s *session) endWorkspace() {
	if s.overlay {
		_ = s.tree.Kill() // what cannot be killed writes where no one looks any more
	}
}

// endIfIdle marks the session as ended, before its last event is appended, if it has
// no request left. Later requests have no effect.
func (s *session) endIfIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = len(s.notices) == 0 && s.killAt.IsZero()
	return s.ended
}

// finish records the outcome and wakes the callers of Wait. The pump appends
// nothing after it.
func (s *session) finish(o spool.Outcome) {
	s.mu.Lock()
	s.ended, s.outcome = true, o
	close(s.done)
	f := s.onEnd
	s.mu.Unlock()
	if f != nil {
		f()
	}
}
