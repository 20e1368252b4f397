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
	cancel  context.CancelCauseFunc // ends its request
	parked  *parked                 // set when it has left its request
}

// errRevoked is the cause of the end of a stream whose token is no longer valid. A
// WebSocket is closed with what it wraps.
var errRevoked = fmt.Errorf("the token is no longer valid: %w", websocket.CloseError{Code: closeStatus + http.StatusUnauthorized, Reason: "revoked"})

// begin counts a stream. The caller calls end when it is over.
func (s *streams) begin(c *call) (end func(), err error) {
	st, err := s.count(c)
	if err != nil {
		return nil, err
	}
	return func() { s.end(st) }, nil
}

// count counts a stream. The caller calls end with it when it is over.
func (s *streams) count(c *call) (*stream, error) {
	st := &stream{subject: c.subject, run: c.run(), cancel: c.cancel}
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
	return st, nil
}

// leave says that a stream goes on without its request.
func (s *streams) leave(st *stream, p *parked) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.cancel, st.parked = nil, p
}

// cut closes the connections of the streams that have left their requests: nobody else
// knows of them.
func (s *streams) cut() {
	for _, st := range s.all() {
		if st.parked != nil {
			_ = st.parked.conn.Close() // the stream notices
		}
	}
}

// all returns the streams as they are now.
func (s *streams) all() []stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]stream, 0, len(s.open))
	for st := range s.open {
		all = append(all, *st)
	}
	return all
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
		s.checking = len(s.open) > 0
		going := s.checking
		s.mu.Unlock()
		if !going {
			return
		}
		for _, st := range s.all() {
			switch err := s.server.auth.Valid(st.subject); {
			case err == nil:
			case st.parked != nil:
				st.parked.end(errRevoked)
			default:
				st.cancel(errRevoked)
			}
		}
	}
}
