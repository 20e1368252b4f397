package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// sessionLock is the lock of the session that the agent works in, or the wait
// for it. The loop owns it.
type sessionLock struct {
	locks   *sessions.Locks  // may be nil
	ticket  *sessions.Ticket // nil unless the lock is ours
	key     string           // of the session that the ticket is for
	stamp   uint64           // of the last ticket
	looked  time.Time        // when we last looked whether another run wants the session
	results chan locked
	cancel  context.CancelFunc // nil unless we wait
	since   time.Time          // we wait; zero once a notice has said so
}

// locked is the end of a wait.
type locked struct {
	ticket *sessions.Ticket
	key    string
	err    error
}

// holds reports whether the lock of that session is ours.
func (l *sessionLock) holds(key string) bool { return l.ticket != nil && l.key == key }

// wait waits for the lock of a session in the background.
func (l *sessionLock) wait(key string) {
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel, l.since = cancel, time.Now()
	go func() {
		t, err := l.locks.Lock(ctx, key)
		l.results <- locked{t, key, err}
	}()
}

// giveUp ends a wait. Its end comes with an error, or with a ticket that came
// first.
func (l *sessionLock) giveUp() {
	if l.cancel != nil {
		l.cancel()
	}
}

// waited ends the wait whose end came.
func (l *sessionLock) waited() {
	l.cancel()
	l.cancel, l.since = nil, time.Time{}
}

// key names a session among those of all agents.
func (s *session) key(id string) string {
	return sessions.Token{Engine: s.agent.Name, Value: id}.Key()
}

// learnt is called with the id of the session before any reader of the log can
// know it. If the session is not ours yet, all that follows is kept back.
func (s *session) learnt(t *talk.Turn, id string) {
	key := s.key(id)
	if s.config.Resume != "" && !s.config.Fork && id != s.config.Resume {
		t.Notice("warning", talk.NoticeSession, fmt.Sprintf("the agent goes on in session %s, not in %s", id, s.config.Resume))
	}
	if s.lock.locks == nil || s.lock.holds(key) || s.lock.cancel != nil || t.Seq == 0 {
		return
	}
	t.Hold()
	s.move(&s.state.turn, turnHeld)
	s.lock.wait(key)
}

// locked goes on with the turn that waited for the lock.
func (s *session) locked(l locked) {
	s.lock.waited()
	if l.err == nil {
		if s.lock.ticket != nil { // the agent changed the session
			s.lock.ticket.Release()
		}
		stamp := l.ticket.Stamp()
		// A process of ours that lives on does not know what others said.
		if s.proc != nil && !s.spoken() && stamp != s.lock.stamp+1 {
			s.proc.stale = true
		}
		s.lock.ticket, s.lock.key, s.lock.stamp = l.ticket, l.key, stamp
		s.setBaseline(l.key)
	}
	if s.cur == nil { // the turn that waited for it is over
		s.unlock()
		return
	}
	p := s.cur.Value
	if _, stopped := s.cur.Reason(); l.err != nil && !stopped {
		p.Finish(talk.Result{Outcome: spool.TurnError, Error: fmt.Sprintf("wait for the session: %v", l.err), Class: agent.ClassSession})
		s.killNow()
	}
	switch s.state.turn {
	case turnLocking:
		if l.err == nil {
			s.move(&s.state.turn, turnReady)
		}
	case turnHeld:
		if p.Result() != nil {
			s.move(&s.state.turn, turnAnswered)
		} else {
			s.move(&s.state.turn, turnTalking)
		}
		p.Release()
		s.settle()
	}
}

// setBaseline remembers what the session had used before this turn.
func (s *session) setBaseline(key string) {
	if s.ledger == nil || s.run.BaseKnown {
		return
	}
	if base := s.ledger.Total(key); base != nil {
		s.run.Base, s.run.BaseKnown = *base, true
	}
}

// unlock gives the session back, or stops waiting for it.
func (s *session) unlock() {
	if s.lock.cancel != nil {
		s.lock.cancel()
		l := <-s.lock.results
		s.lock.waited()
		if l.err == nil {
			l.ticket.Release()
		}
	}
	if s.lock.ticket != nil {
		s.lock.ticket.Release()
		s.lock.ticket = nil
	}
}
