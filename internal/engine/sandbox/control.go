package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/turns"
)

// Control acts on the run, or on one turn of it, at once.
func (s *session) Control(_ context.Context, c spool.Control) error {
	switch c.Op {
	case spool.ControlInterrupt, spool.ControlStop, spool.ControlKill, spool.ControlRestart:
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
	default:
		return fmt.Errorf("control %q: %w by a sandbox", c.Op, spool.ErrUnsupported)
	}
	s.mu.Lock()
	over := s.over
	s.mu.Unlock()
	if over && (c.Op == spool.ControlInterrupt || c.Op == spool.ControlRestart) {
		return spool.ErrEnded
	}
	effect, t := s.turns.Control(c)
	switch {
	case effect == turns.None:
	case c.Op == spool.ControlInterrupt:
		return s.interrupt(t, c.Grace)
	case c.Op == spool.ControlRestart:
		s.restart()
	case effect == turns.OnTurn:
		t.Stop(killed)
	case c.Op == spool.ControlStop && !s.turns.Busy():
		s.end(end{})
	default:
		s.end(end{killed: true})
	}
	s.logged()
	return nil
}

// restart gives the next turn a new interpreter and stops the running turn.
func (s *session) restart() {
	s.mu.Lock()
	s.renew = true
	t := s.turns.Running()
	s.mu.Unlock()
	if t != nil {
		t.Stop(killed)
	}
	s.poke()
}

// interrupt raises KeyboardInterrupt in the script of a turn, and stops it if
// that does not help.
func (s *session) interrupt(t *turn, grace time.Duration) error {
	s.interrupting.Lock()
	defer s.interrupting.Unlock()
	if t.State() == turns.Over {
		return nil
	}
	s.mu.Lock()
	g := s.guest
	s.mu.Unlock()
	i, ok := g.(guest.Interrupter)
	if !ok {
		t.Stop(interrupted)
		return nil
	}
	t.Value.interrupted.Store(true)
	if err := i.Interrupt(); err != nil {
		if errors.Is(err, spool.ErrUnsupported) {
			t.Stop(interrupted)
			return nil
		}
		return fmt.Errorf("interrupt: %w", err)
	}
	if grace <= 0 {
		grace = DefaultGrace
	}
	t.Value.escalate(time.AfterFunc(grace, func() { t.Stop(interrupted) }))
	return nil
}
