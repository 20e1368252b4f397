package agents

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/turns"
	"github.com/spool-run/spool/internal/limits"
)

// prompt is what this engine keeps with a turn.
type prompt struct {
	*talk.Turn // takes what the agent says
	text       spool.Prompt

	heard    time.Time // of the agent, last
	resultAt time.Time // when the agent told the result, or zero
	ticking  bool      // the clock of the turn runs
}

// full reports whether so many events are held back that the agent has to wait.
func (p *prompt) full() bool { return p.HeldBytes() > MaxHeld }

// turnTime is how long a turn may take.
func turnTime(c *agent.Config, p spool.Prompt) time.Duration {
	return duration(cmp.Or(p.TimeoutMs, c.TurnTimeoutMs), 0)
}

// arrived does with a prompt what the follow-up policy says, if a turn runs.
func (s *session) arrived(t *turns.Turn[*prompt]) {
	if t.State() != turns.Queued { // it began, or was cancelled
		return
	}
	switch s.config.FollowUp {
	case agent.FollowReject:
		if s.cur != nil || s.turns.First() != t {
			s.turns.Finish(t, spool.Done{Outcome: spool.TurnRefused, Error: "a turn runs already", ErrorClass: turns.ClassNotRun})
		}
	case agent.FollowInterrupt:
		s.halt(turns.Reason{By: "follow_up", Outcome: spool.TurnInterrupted, Text: "another prompt came"}, 0)
	case agent.FollowSteer:
		if s.attentive() && s.cur.Value.Result() == nil {
			err := s.proc.conv.Steer(t.Value.text, s.cur.Value.Turn)
			if err == nil {
				s.turns.Finish(t, spool.Done{Outcome: spool.TurnOK, EndedBy: "steered"})
				return
			}
			t.Value.Notice("info", talk.NoticeNotSteered, fmt.Sprintf("the prompt waits for the turn to end: %v", err))
		}
	}
}

// begin prepares for a turn: the session has to be free.
func (s *session) begin(t *turns.Turn[*prompt]) {
	t.Pause() // until the agent has the prompt
	s.cur = t
	s.run.Base, s.run.BaseKnown = agent.Spend{}, s.run.Session == "" && s.config.Resume == ""
	if text := s.overBudget(s.run.Spent); text != "" {
		s.move(&s.state.turn, turnReady)
		t.Value.Finish(talk.Result{Outcome: agent.TurnBudget, Error: text, Class: agent.ClassStopped})
		return
	}
	resume := s.run.Session
	if resume == "" && !s.config.Fork {
		resume = s.config.Resume
	}
	switch {
	case resume == "":
		s.move(&s.state.turn, turnReady)
	case s.lock.holds(s.key(resume)) || s.lock.locks == nil:
		s.move(&s.state.turn, turnReady)
		s.setBaseline(s.key(resume))
	default:
		s.move(&s.state.turn, turnLocking)
		s.lock.wait(s.key(resume))
	}
}

// speak gives the prompt to the process that lives, or to a new one. It
// reports false if it has to wait for the old one to end.
func (s *session) speak() bool {
	switch {
	case s.proc == nil:
		s.launch()
	case s.proc.gone():
		s.forget()
	case s.state.process == processAlive && !s.proc.stale && s.proc.eofAt.IsZero():
		s.move(&s.state.turn, turnTalking)
		s.say()
	default:
		// Another run has spoken in the session, or this process says
		// nothing any more: a new process has to take over.
		s.stopProcess(stepInBand, 0)
		return false
	}
	return true
}

// say gives the prompt to the process that runs.
func (s *session) say() {
	p := s.cur.Value
	p.heard = time.Now()
	if err := s.proc.conv.Prompt(p.text, p.Turn); err != nil {
		p.Finish(talk.Result{Outcome: spool.TurnError, Error: fmt.Sprintf("give the prompt to %s: %v", s.agent.Name, err), Class: agent.ClassProtocol})
	}
	s.settle()
}

// noteResult notes what the agent told, and has the clock of the turn run while
// the agent works on it.
func (s *session) noteResult() {
	if s.cur == nil {
		return
	}
	p := s.cur.Value
	if p.Result() != nil {
		if p.resultAt.IsZero() {
			p.resultAt = time.Now()
		}
		if s.state.turn == turnTalking {
			s.move(&s.state.turn, turnAnswered)
		}
	}
	ticking := s.state.turn.in(turnTalking, turnHeld) && s.state.process != processExited && p.Result() == nil
	switch {
	case ticking && !p.ticking:
		s.cur.Resume()
	case !ticking && p.ticking:
		s.cur.Pause()
	}
	p.ticking = ticking
}

// concluded reports whether nothing more can come of the turn that runs.
func (s *session) concluded() bool {
	p := s.cur.Value
	switch s.state.turn {
	case turnLocking, turnReady: // it ended before it began
		return p.Result() != nil
	case turnTalking, turnAnswered:
		return s.proc.gone() || s.duplex && p.Result() != nil && !s.proc.ladder.ends()
	}
	return false
}

// conclude ends the turn that runs. The result that the agent told counts
// first, then its exit status, then whether we stopped the turn.
func (s *session) conclude() {
	t, p, proc := s.cur, s.cur.Value, s.proc
	if !s.spoken() {
		proc = nil // it was not there for this turn
	}
	var d spool.Done
	if proc != nil && proc.exit != nil {
		x := *proc.exit
		x.Stderr = proc.child.stderr()
		if x.Code >= 0 && proc.gone() {
			d.ExitCode, d.Signal = new(x.Code), x.Signal
		}
		if p.Result() == nil {
			proc.conv.Ended(x, p.Turn)
		}
	}
	if p.Result() == nil { // no conversation should leave it so
		p.Finish(talk.Result{Outcome: spool.TurnCrashed, Error: s.agent.Name + " ended without a result", Class: agent.ClassProtocol})
	}
	r := *p.Result()
	if proc != nil && proc.exit != nil && proc.exit.OutOfMemory && r.Outcome != spool.TurnOK {
		r.Error = limits.OutOfMemory(s.limits.MemoryBytes) + ": " + r.Error
	}
	if proc != nil && proc.ladder != nil {
		d.StoppedWith = proc.ladder.used
	}
	if why, stopped := t.Reason(); stopped && r.Outcome != spool.TurnOK {
		d.EndedBy = why.By
		r.Outcome, r.Error, r.Class = why.Outcome, why.Text, agent.ClassStopped
	}
	if proc != nil && (proc.gone() || r.Outcome != spool.TurnOK) { // else it may be about other turns
		d.Stderr = proc.child.stderr()
	}
	p.CloseActions(closing(r.Outcome))
	s.settleUsage(p.Turn, &d)
	d.Outcome, d.Error, d.ErrorClass = r.Outcome, r.Error, r.Class
	d.Answer = cmp.Or(r.Answer, p.LastText())
	if len(d.Answer) > talk.MaxText { // the whole of it is in its message
		d.Answer = strings.ToValidUTF8(d.Answer[:talk.MaxText], "\uFFFD")
	}
	if r.Outcome == spool.TurnOK {
		d.Error, d.ErrorClass = "", ""
	}
	d.Resume = s.run.Session
	s.answers = nil
	s.cur = nil
	s.move(&s.state.turn, turnNone)
	if proc != nil {
		s.spare()
	}
	if !s.resides() {
		s.unlock()
	}
	if s.overlay && s.proc.gone() { // so that nothing changes it any more
		s.forget()
	}
	s.noteChanges(p.Turn)
	s.turns.Finish(t, d)
	if s.proc.gone() {
		s.forget()
	}
	s.yield()
}

// closing is the end of actions that had none.
func closing(o spool.TurnOutcome) string {
	switch o {
	case spool.TurnInterrupted, spool.TurnCancelled, spool.TurnKilled:
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
	t.Put(agent.KindUsage, u, nil)
	if data, err := json.Marshal(u); err == nil {
		d.Usage = data
	}
}
