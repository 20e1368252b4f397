package modeltest

import (
	"fmt"
	"sync"
)

// Script determines the answers of the model.
type Script interface {
	// Step returns the step that answers a request.
	Step(r *Request) (Step, error)
	// Left returns an error that describes unplayed steps, or nil.
	Left() error
}

// InOrder plays one step per request. A request beyond the steps and an
// unplayed step are errors of the model.
func InOrder(steps ...Step) Script { return &ordered{steps: steps} }

type ordered struct {
	mu     sync.Mutex
	steps  []Step
	played int
}

func (s *ordered) Step(*Request) (Step, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.played++
	if s.played > len(s.steps) {
		return nil, fmt.Errorf("request %d is beyond the script of %d steps", s.played, len(s.steps))
	}
	return s.steps[s.played-1], nil
}

func (s *ordered) Left() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if left := len(s.steps) - s.played; left > 0 {
		return fmt.Errorf("script has %d of %d steps left", left, len(s.steps))
	}
	return nil
}

// ByTurn plays step n to a conversation with n answers; the last step also
// answers all later requests. A request without tools asks for a title or the
// like, and gets a title.
func ByTurn(steps ...Step) Script { return byTurn(steps) }

type byTurn []Step

func (s byTurn) Step(r *Request) (Step, error) {
	if len(r.Tools) == 0 {
		return Say("A title"), nil
	}
	if len(s) == 0 {
		return nil, fmt.Errorf("the script has no steps")
	}
	return s[min(r.Answers(), len(s)-1)], nil
}

func (s byTurn) Left() error { return nil }
