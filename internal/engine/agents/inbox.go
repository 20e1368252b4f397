package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/turns"
)

// inbox holds what callers of the session want of its loop, in order.
type inbox struct {
	wake chan struct{} // has room for one

	mu       sync.Mutex
	requests []request
	pid      int // of the process that runs
}

// request is one of these.
type request struct {
	prompt  *turns.Turn[*prompt] // it was accepted
	answer  *spool.Answer
	control *control
}

// control is one that the loop has to act on.
type control struct {
	spool.Control
	turn *turns.Turn[*prompt] // the one that it is for; nil for the run
}

func (b *inbox) add(r request) {
	b.mu.Lock()
	b.requests = append(b.requests, r)
	b.mu.Unlock()
	b.rouse()
}

// rouse has the loop look at everything once more.
func (b *inbox) rouse() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []request {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.requests
	b.requests = nil
	return list
}

func (b *inbox) setPid(pid int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pid = pid
}

// Pid is that of the agent's process, if one runs.
func (s *session) Pid() int {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	return s.inbox.pid
}

// Wait returns how the run ended.
func (s *session) Wait() spool.Outcome {
	<-s.done
	return s.outcome
}

// Takes says whether an input would be accepted now.
func (s *session) Takes(in spool.Input) error {
	switch in.Kind {
	case spool.InputPrompt:
		if err := s.turns.Takes(); err != nil {
			return err
		}
		if s.config.FollowUp == agent.FollowReject && s.turns.Busy() {
			return fmt.Errorf("%w: a turn runs", spool.ErrBusy)
		}
		waiting := s.turns.Len()
		if s.turns.Running() != nil {
			waiting++
		}
		if waiting > MaxQueued {
			return fmt.Errorf("%w: %d prompts wait", spool.ErrBusy, MaxQueued)
		}
		p, err := decodePrompt(in, s.config.ImageBytes)
		if err == nil && len(p.Images) > 0 {
			err = s.takesImages()
		}
		return err
	case spool.InputAnswer:
		return nil
	case spool.InputEOF:
		return s.turns.Takes()
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// decodePrompt reads a prompt whose images have so many bytes at most.
func decodePrompt(in spool.Input, imageBytes int64) (spool.Prompt, error) {
	var p spool.Prompt
	if err := json.Unmarshal(in.Data, &p); err != nil {
		return p, fmt.Errorf("decode prompt: %w: %w", spool.ErrInvalid, err)
	}
	if p.Text == "" && len(p.Images) == 0 || len(p.Text) > agent.MaxPrompt {
		return p, fmt.Errorf("a prompt of %d bytes: %w", len(p.Text), spool.ErrInvalid)
	}
	return p, checkImages(p.Images, imageBytes)
}

// Send takes a prompt, an answer, or the end of prompts.
func (s *session) Send(_ context.Context, in spool.Input) error {
	switch in.Kind {
	case spool.InputPrompt:
		if err := s.turns.Takes(); err != nil {
			return err
		}
		text, err := decodePrompt(in, s.config.ImageBytes)
		if err != nil {
			return err
		}
		p := &prompt{Turn: talk.NewTurn(&s.run, in.Seq), text: text}
		t, err := s.turns.Accept(in, p, turnTime(s.config, text))
		if err != nil {
			return err
		}
		s.inbox.add(request{prompt: t})
		return nil
	case spool.InputAnswer:
		if err := s.live(); err != nil {
			return err
		}
		var a spool.Answer
		if err := json.Unmarshal(in.Data, &a); err != nil {
			return fmt.Errorf("decode answer: %w: %w", spool.ErrInvalid, err)
		}
		s.inbox.add(request{answer: &a})
		return nil
	case spool.InputEOF:
		if err := s.turns.Takes(); err != nil {
			return err
		}
		s.turns.Shut()
		s.inbox.rouse()
		return nil
	}
	return fmt.Errorf("input %q: %w", in.Kind, spool.ErrUnsupported)
}

// Control interrupts, stops or kills a turn or the run.
func (s *session) Control(_ context.Context, c spool.Control) error {
	switch c.Op {
	case spool.ControlInterrupt, spool.ControlStop, spool.ControlKill:
	default:
		return fmt.Errorf("control %q: %w", c.Op, spool.ErrUnsupported)
	}
	if err := s.live(); err != nil {
		return err
	}
	// What it is for is settled at once: it must not meet a prompt that comes
	// after it.
	switch effect, t := s.turns.Control(c); effect {
	case turns.None:
		s.inbox.rouse()
	case turns.OnTurn:
		s.inbox.add(request{control: &control{c, t}})
	case turns.OnRun:
		s.inbox.add(request{control: &control{c, nil}})
	}
	return nil
}

// live returns [spool.ErrEnded] if the run has ended.
func (s *session) live() error {
	select {
	case <-s.done:
		return spool.ErrEnded
	default:
		return nil
	}
}
