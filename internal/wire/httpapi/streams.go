package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// streams are the answers that last: their number is bounded, and they end when the
// right to read does.
type streams struct {
	server *Server

	mu        sync.Mutex
	open      map[*stream]struct{}
	bySubject map[string]int
	byRun     map[spool.RunID]int
	watchers  int
	checking  bool
	wg        sync.WaitGroup
}

// stream is one of them.
type stream struct {
	subject *access.Subject
	run     spool.RunID
	cancel  context.CancelCauseFunc
}

// errRevoked is the cause of the end of a stream whose token is no longer valid. A
// WebSocket is closed with what it wraps.
var errRevoked = fmt.Errorf("the token is no longer valid: %w", websocket.CloseError{Code: closeStatus + http.StatusUnauthorized, Reason: "revoked"})

// begin counts a stream. The caller calls end when it is over.
func (s *streams) begin(c *call) (end func(), err error) {
	st := &stream{c.subject, c.run(), c.cancel}
	limits := &s.server.limits
	s.mu.Lock()
	defer s.mu.Unlock()
	what, most := "", 0
	switch {
	case s.server.ctx.Err() != nil:
		return nil, spool.ErrClosed
	case len(s.open) >= limits.Streams:
		what, most = "the server", limits.Streams
	case s.bySubject[st.subject.Name] >= limits.StreamsOf:
		what, most = st.subject.String(), limits.StreamsOf
	case s.byRun[st.run] >= limits.StreamsOfRun:
		what, most = "the run", limits.StreamsOfRun
	}
	if what != "" {
		p := problemf("too_many_streams", "%s has %d streams, which is the most", what, most)
		p.RetryAfterMs = 1000
		return nil, p
	}
	s.open[st] = struct{}{}
	s.bySubject[st.subject.Name]++
	s.byRun[st.run]++
	s.wg.Add(1)
	if s.server.auth != nil && !s.checking {
		s.checking = true
		s.server.wg.Go(s.check)
	}
	return func() { s.end(st) }, nil
}

// beginWatch counts a watcher, which is a stream, too.
func (s *streams) beginWatch(c *call) (end func(), err error) {
	s.mu.Lock()
	if most := s.server.limits.Watchers; s.watchers >= most {
		s.mu.Unlock()
		p := problemf("too_many_streams", "the server has %d watchers, which is the most", most)
		p.RetryAfterMs = 1000
		return nil, p
	}
	s.watchers++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		s.watchers--
		s.mu.Unlock()
	}
	over, err := s.begin(c)
	if err != nil {
		leave()
		return nil, err
	}
	return func() { over(); leave() }, nil
}

func (s *streams) end(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, st)
	if s.bySubject[st.subject.Name]--; s.bySubject[st.subject.Name] == 0 {
		delete(s.bySubject, st.subject.Name)
	}
	if s.byRun[st.run]--; s.byRun[st.run] == 0 {
		delete(s.byRun, st.run)
	}
	s.wg.Done()
}

// wait returns when all streams are over.
func (s *streams) wait() { s.wg.Wait() }

// check ends the streams whose tokens are no longer valid, until there is no
// stream.
func (s *streams) check() {
	ticker := time.NewTicker(s.server.limits.CheckEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.server.ctx.Done():
			return
		}
		s.mu.Lock()
		open := make([]*stream, 0, len(s.open))
		for st := range s.open {
			open = append(open, st)
		}
		s.checking = len(open) > 0
		s.mu.Unlock()
		if len(open) == 0 {
			return
		}
		for _, st := range open {
			if err := s.server.auth.Valid(st.subject); err != nil {
				st.cancel(errRevoked)
			}
		}
	}
}
