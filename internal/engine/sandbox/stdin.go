package sandbox

import (
	"context"
	"io"
	"sync"

	"github.com/spool-run/spool"
)

// stdin is the standard input of one turn.
type stdin struct {
	mu      sync.Mutex
	data    []byte
	eof     bool
	changed chan struct{} // closed at the next change; nil without a waiter
}

func newStdin() *stdin { return &stdin{} }

// wait returns what is closed at the next change. Callers hold mu.
func (s *stdin) wait() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// notify wakes all waiters. Callers hold mu.
func (s *stdin) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// write adds input. It waits while there is too much.
func (s *stdin) write(ctx context.Context, p []byte) error {
	for {
		s.mu.Lock()
		switch {
		case s.eof:
			s.mu.Unlock()
			return nil // the turn is over; unread input is dropped
		case len(s.data) == 0 || len(s.data)+len(p) <= MaxStdin:
			s.data = append(s.data, p...)
			s.notify()
			s.mu.Unlock()
			return nil
		}
		changed := s.wait()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return spool.ErrInputClosed
		}
	}
}

// discard drops what was not read: the turn is over.
func (s *stdin) discard() {
	s.end()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = nil
}

// end marks the end of the input. It also releases the writers that wait for
// a turn that is over.
func (s *stdin) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eof = true
	s.notify()
}

// read waits for input and returns io.EOF at its end.
func (s *stdin) read(ctx context.Context, p []byte) (int, error) {
	for {
		s.mu.Lock()
		if n := copy(p, s.data); n > 0 || len(p) == 0 {
			s.data = s.data[n:]
			if len(s.data) == 0 {
				s.data = nil
			}
			s.notify()
			s.mu.Unlock()
			return n, nil
		}
		if s.eof {
			s.mu.Unlock()
			return 0, io.EOF
		}
		changed := s.wait()
		s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}
