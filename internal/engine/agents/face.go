package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// request is something that somebody wants of the loop.
type request struct {
	input   *spool.Input
	control *spool.Control
}

// Pid is that of the agent's process, if one runs.
func (s *session) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader
}

// Wait returns how the run ended.
func (s *session) Wait() spool.Outcome {
	<-s.done
	return s.outcome
}

// Takes says whether a prompt is welcome.
func (s *session) Takes(in spool.Input) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch in.Kind {
	case spool.InputPrompt:
		switch {
		case s.closed:
			return spool.ErrInputClosed
		case s.config.FollowUp == agent.FollowReject && s.waiting > 0:
			return fmt.Errorf("%w: a turn runs", spool.ErrBusy)
		case s.waiting > MaxQueued:
			return fmt.Errorf("%w: %d prompts wait", spool.ErrBusy, MaxQueued)
		}
		var p spool.Prompt
		if err := json.Unmarshal(in.Data, &p); err != nil {
			return fmt.Errorf("decode prompt: %w: %w", spool.ErrInvalid, err)
		}
		if p.Text == "" || len(p.Text) > MaxPrompt {
			return fmt.Errorf("a prompt of %d bytes: %w", len(p.Text), spool.ErrInvalid)
		}
		return nil
	case spool.InputAnswer, spool.InputEOF:
		if s.closed && in.Kind == spool.InputEOF {
			return spool.ErrInputClosed
		}
		return nil
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// Send leaves a prompt, an answer, or the end of prompts.
func (s *session) Send(ctx context.Context, in spool.Input) error {
	if err := s.Takes(in); err != nil && !errors.Is(err, spool.ErrBusy) {
		return err
	}
	return s.request(request{input: &in})
}

// Control interrupts a turn, or ends the run.
func (s *session) Control(_ context.Context, c spool.Control) error {
	switch c.Op {
	case spool.ControlInterrupt, spool.ControlStop, spool.ControlKill:
	default:
		return fmt.Errorf("control %q: %w", c.Op, spool.ErrUnsupported)
	}
	return s.request(request{control: &c})
}

func (s *session) request(r request) error {
	select {
	case <-s.done:
		return spool.ErrEnded
	default:
	}
	s.mu.Lock()
	s.requests = append(s.requests, r)
	switch {
	case r.input == nil:
	case r.input.Kind == spool.InputPrompt:
		s.waiting++
	case r.input.Kind == spool.InputEOF:
		s.closed = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
	return nil
}
