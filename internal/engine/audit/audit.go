// Package audit is the engine of audit logs. Its runs execute nothing: every line
// of their input, the payload of a notice, becomes an event.
package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// Engine starts audit logs.
type Engine struct{}

var _ engine.Engine = Engine{}

// Start implements [engine.Engine].
func (Engine) Start(_ context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	if len(spec.Argv) > 0 || len(spec.Config) > 0 || spec.TTY != nil {
		return nil, &spool.StartError{Reason: engine.StartInvalid, Err: fmt.Errorf("%w: an audit log has no command, config or terminal", spool.ErrInvalid)}
	}
	return &session{out: out, done: make(chan struct{})}, nil
}

// session is one audit log.
type session struct {
	out  engine.Sink
	done chan struct{} // closed with the last event

	mu    sync.Mutex
	ended bool
}

// Pid implements [engine.Session].
func (s *session) Pid() int { return 0 }

// Takes implements [engine.Session].
func (s *session) Takes(in spool.Input) error {
	switch in.Kind {
	case spool.InputEOF:
		return nil
	case spool.InputStdin:
	default:
		return fmt.Errorf("%w: an audit log takes no %s", spool.ErrUnsupported, in.Kind)
	}
	for line := range bytes.Lines(in.Bytes) {
		var n spool.Notice
		if err := json.Unmarshal(line, &n); err != nil {
			return fmt.Errorf("%w: a line of an audit log: %w", spool.ErrInvalid, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return spool.ErrInputClosed
	}
	return nil
}

// Send implements [engine.Session].
func (s *session) Send(_ context.Context, in spool.Input) error {
	if in.Kind == spool.InputEOF {
		s.end()
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return spool.ErrInputClosed
	}
	for line := range bytes.Lines(in.Bytes) {
		data := bytes.Clone(bytes.TrimSpace(line))
		if _, err := s.out.Append(spool.Event{Kind: spool.KindNotice, Data: data}); err != nil {
			return fmt.Errorf("append to an audit log: %w", err)
		}
	}
	return nil
}

// Control implements [engine.Session].
func (s *session) Control(_ context.Context, c spool.Control) error {
	switch c.Op {
	case spool.ControlStop, spool.ControlKill:
		s.end()
		return nil
	}
	return fmt.Errorf("%w: an audit log cannot %s", spool.ErrUnsupported, c.Op)
}

// end appends the outcome.
func (s *session) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	_, _ = s.out.Append(outcome.Event()) // a log that takes no event ends as well
	close(s.done)
}

var outcome = spool.Outcome{Kind: spool.Exited}

// Wait implements [engine.Session].
func (s *session) Wait() spool.Outcome {
	<-s.done
	return outcome
}
