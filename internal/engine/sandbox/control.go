package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// Control acts on the run, or on one turn of it, at once.
func (s *session) Control(ctx context.Context, c spool.Control) error {
	switch c.Op {
	case spool.ControlSignal:
		switch c.Signal {
		case "SIGINT":
			c.Op = spool.ControlInterrupt
		case "SIGTERM", "SIGHUP", "SIGQUIT":
			c.Op = spool.ControlStop
		case "SIGKILL":
			c.Op = spool.ControlKill
		default:
			return fmt.Errorf("signal %q: %w by a sandbox", c.Signal, spool.ErrUnsupported)
		}
		return s.Control(ctx, c)
	case spool.ControlInterrupt:
		return s.interrupt(c)
	case spool.ControlStop, spool.ControlKill:
		if c.Turn != 0 {
			return s.stopTurn(c.Turn, errKilled)
		}
		if c.Op == spool.ControlStop && !s.busy() {
			s.end(end{})
			return nil
		}
		s.end(end{killed: true})
		return nil
	case spool.ControlRestart:
		s.mu.Lock()
		over, t := s.over, s.current
		s.renew = !over
		s.mu.Unlock()
		if over {
			return spool.ErrEnded
		}
		if t != nil {
			t.stop(errKilled)
		}
		s.poke()
		return nil
	}
	return fmt.Errorf("control %q: %w by a sandbox", c.Op, spool.ErrUnsupported)
}

// busy reports whether there is a turn, or one to come.
func (s *session) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current != nil || len(s.queue) > 0
}

// stopTurn ends a turn that runs or waits. One that is over is left alone.
func (s *session) stopTurn(seq spool.Seq, why error) error {
	s.mu.Lock()
	t := s.current
	if t != nil && t.seq != seq {
		t = nil
	}
	if i := slices.IndexFunc(s.queue, func(t *turn) bool { return t.seq == seq }); i >= 0 {
		t = s.queue[i] // its turn comes and ends at once
	}
	if (s.last == nil || seq > s.last.seq) && len(s.doomed) < MaxQueued {
		// A control overtakes the input it is about.
		if s.doomed == nil {
			s.doomed = make(map[spool.Seq]error)
		}
		s.doomed[seq] = why
	}
	s.mu.Unlock()
	if t != nil {
		t.stop(why)
	}
	return nil
}

// interrupt raises KeyboardInterrupt in the script that runs, and stops it if
// that does not help.
func (s *session) interrupt(c spool.Control) error {
	s.mu.Lock()
	t, g, over := s.current, s.guest, s.over
	s.mu.Unlock()
	switch {
	case over:
		return spool.ErrEnded
	case t == nil || c.Turn != 0 && c.Turn != t.seq:
		if c.Turn != 0 {
			return s.stopTurn(c.Turn, errInterrupted)
		}
		return nil
	}
	i, ok := g.(guest.Interrupter)
	if !ok {
		t.stop(errInterrupted)
		return nil
	}
	t.interrupted.Store(true)
	if err := i.Interrupt(); err != nil {
		if errors.Is(err, spool.ErrUnsupported) {
			t.stop(errInterrupted)
			return nil
		}
		return fmt.Errorf("interrupt: %w", err)
	}
	grace := c.Grace
	if grace <= 0 {
		grace = DefaultGrace
	}
	t.escalate(time.AfterFunc(grace, func() { t.stop(errInterrupted) }))
	return nil
}

// errInterrupted is why a turn was stopped that would not be interrupted.
var errInterrupted = errors.New("interrupted")
