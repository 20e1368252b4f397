package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// concluded reports whether nothing more can come of the turn that runs.
func (s *session) concluded() bool {
	t := s.cur
	switch {
	case t.Held() || s.locking != nil && t.Result() == nil:
		return false
	case s.child == nil:
		return t.Result() != nil
	case !s.launched: // it ended before it began
		return t.Result() != nil
	case s.gone():
		return true
	}
	return s.duplex && t.Result() != nil
}

// conclude ends the turn that runs. The agent's last word counts first, then
// its exit status, then whether we asked it to stop.
func (s *session) conclude() {
	t := s.cur
	var d spool.Done
	if s.child != nil && s.launched && s.exit != nil {
		x := *s.exit
		x.Stderr = s.child.stderr()
		if x.Code >= 0 && s.gone() {
			code := x.Code
			d.ExitCode, d.Signal = &code, x.Signal
		}
		if t.Result() == nil {
			s.conv.Ended(x, t)
		}
	}
	if t.Result() == nil { // no conversation should leave it so
		t.Finish(talk.Result{Outcome: spool.TurnCrashed, Error: s.runner.Name + " ended without a result", Class: agent.ClassProtocol})
	}
	r := *t.Result()
	if p := s.stop; p != nil && s.launched {
		d.StoppedWith = p.used
		if p.outcome != "" && r.Outcome != spool.TurnOK {
			d.EndedBy = p.endedBy
			r.Outcome, r.Error, r.Class = p.outcome, p.text, agent.ClassStopped
		}
	} else if p != nil {
		d.EndedBy = p.endedBy
	}
	if s.child != nil && s.launched && (s.gone() || r.Outcome != spool.TurnOK) { // else it may be about other turns
		d.Stderr = s.child.stderr()
	}
	t.CloseActions(closing(r.Outcome))
	s.settleUsage(t, &d)
	d.Outcome, d.Error, d.ErrorClass = r.Outcome, r.Error, r.Class
	d.Answer = cmp.Or(r.Answer, t.LastText())
	if len(d.Answer) > talk.MaxText { // the whole of it is in its message
		d.Answer = strings.ToValidUTF8(d.Answer[:talk.MaxText], "\uFFFD")
	}
	if r.Outcome == spool.TurnOK {
		d.Error, d.ErrorClass = "", ""
	}
	clear(s.asks)
	s.verdicts = nil
	s.cur, s.launched, s.ready, s.stop = nil, false, false, nil
	if !s.resides() {
		s.unlock()
	}
	s.write(t, d)
	if s.gone() {
		s.forgetChild()
	}
	s.yield()
}

// closing is what is said of actions that never ended.
func closing(o spool.TurnOutcome) string {
	switch o {
	case spool.TurnInterrupted, spool.TurnCancelled:
		return "cancelled"
	case spool.TurnOK:
		return "the agent did not tell how it ended"
	}
	return "the turn ended before it did"
}

// settleUsage writes what the turn used.
func (s *session) settleUsage(t *talk.Turn, d *spool.Done) {
	u := t.Usage()
	if u == nil {
		return
	}
	if u.Run != nil {
		s.run.Spent = *u.Run
	}
	if u.Session != nil && s.ledger != nil && s.run.Session != "" {
		s.ledger.Note(s.key(s.run.Session), *u.Session)
	}
	t.Put(spool.KindUsage, u, nil, nil)
	if data, err := json.Marshal(u); err == nil {
		d.Usage = data
	}
}

// key names a session among those of all agents.
func (s *session) key(id string) string {
	return sessions.Token{Engine: s.runner.Name, Value: id}.Key()
}

// resides reports whether a process that waits for the next prompt keeps the
// session to itself, and we its lock.
func (s *session) resides() bool {
	return s.duplex && s.runner.Exclusive && s.lease != nil && s.cur == nil && s.child != nil && !s.gone()
}

// residePoll is how often we look whether somebody else wants a session that
// a process of ours keeps.
const residePoll = 200 * time.Millisecond

// yield ends a process that keeps a session which somebody else waits for.
func (s *session) yield() {
	if s.resides() && s.stop == nil && s.lease.Contested() {
		s.stop = &stopping{grace: s.grace(0)}
		s.escalate()
	}
}

// lock waits for the session in the background. The turn that runs goes on
// when it is ours.
func (s *session) lock(id string) {
	key := s.key(id)
	if s.locks == nil {
		s.ready = true
		s.setBaseline(key)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.locking, s.waitSince = cancel, time.Now()
	go func() {
		l, err := s.locks.Lock(ctx, key)
		s.leases <- leased{l, key, err}
	}()
}

// learnt is called with the id of the session before anybody else can know
// it. If the session is not ours yet, all that follows is kept back.
func (s *session) learnt(t *talk.Turn, id string) {
	key := s.key(id)
	if s.config.Resume != "" && !s.config.Fork && id != s.config.Resume {
		t.Notice("warning", talk.NoticeSession, fmt.Sprintf("the agent goes on in session %s, not in %s", id, s.config.Resume))
	}
	if s.locks == nil || s.lease != nil && s.leaseKey == key || s.locking != nil || t.Seq == 0 {
		return
	}
	t.Hold()
	s.lock(id)
}

// leased is the end of waiting.
func (s *session) leased(l leased) {
	s.locking()
	s.locking, s.waitSince = nil, time.Time{}
	t := s.cur
	if l.err == nil {
		if s.lease != nil { // the agent changed the session
			s.lease.Release()
		}
		s.lease, s.leaseKey = l.lease, l.key
		n := l.lease.Stamp()
		// A process of ours that lives on does not know what others said.
		s.stale = s.stale || s.child != nil && !s.launched && n != s.stamp+1
		s.stamp = n
		s.setBaseline(l.key)
	}
	if t == nil { // nobody waits for it any more
		s.unlock()
		return
	}
	if l.err != nil && s.stop == nil {
		t.Finish(talk.Result{Outcome: spool.TurnError, Error: fmt.Sprintf("wait for the session: %v", l.err), Class: agent.ClassSession})
		s.killNow()
	}
	s.ready = l.err == nil
	if t.Held() {
		t.Release()
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
	if s.locking != nil {
		s.locking()
		l := <-s.leases
		s.locking, s.waitSince = nil, time.Time{}
		if l.err == nil {
			l.lease.Release()
		}
	}
	if s.lease != nil {
		s.lease.Release()
		s.lease = nil
	}
}

// unlockWait stops waiting for the session. The end comes as a lease with an
// error, or one that came first.
func (s *session) unlockWait() {
	if s.locking != nil {
		s.locking()
	}
}
