package sandbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

// stuck is an interpreter whose script goes on until it is interrupted or killed.
type stuck struct {
	heeds       bool          // the interrupt
	interrupted chan struct{} // holds one
}

func (s *stuck) Run(ctx context.Context, _ guest.Script, _ guest.Host) (guest.Result, error) {
	interrupted := s.interrupted
	if !s.heeds {
		interrupted = nil
	}
	select {
	case <-interrupted:
		return guest.Result{}, nil
	case <-ctx.Done():
		return guest.Result{EndedBy: guest.Killed}, nil
	}
}

func (s *stuck) Interrupt() error {
	select {
	case s.interrupted <- struct{}{}:
	default: // once more
	}
	return nil
}

func (s *stuck) Close() error { return nil }

// A question is answered after inspectTimeout at the latest. Then the interpreter
// is interrupted, and killed if it does not heed that.
func TestInspectionOfASandboxHasADeadline(t *testing.T) {
	for heeds, want := range map[bool]time.Duration{true: inspectTimeout, false: inspectTimeout + inspectGrace} {
		synctest.Test(t, func(t *testing.T) {
			s := newSession(nil, &spool.Spec{}, &python.SandboxConfig{}, nil, enginetest.NewLog())
			defer s.cancel(context.Canceled)
			s.guest = &stuck{heeds: heeds, interrupted: make(chan struct{}, 1)}
			q := &question{reply: make(chan answered, 1)}
			begin := time.Now()
			over := make(chan time.Duration, 1)
			go func() {
				s.answer(q)
				over <- time.Since(begin)
			}()
			if a := <-q.reply; !errors.Is(a.err, errInspectTimeout) || time.Since(begin) != inspectTimeout {
				t.Errorf("after %v: %v", time.Since(begin), a.err)
			}
			if took := <-over; took != want {
				t.Errorf("the interpreter is free after %v, want %v", took, want)
			}
		})
	}
}
