package agents

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/turns"
)

// How long it takes for things that should not take long.
const (
	// drainTime is what the output of a process that has exited may take,
	// while another process holds its streams.
	drainTime = 2 * time.Second
	// forceTime is what a killed process may take to be gone.
	forceTime = 5 * time.Second
	// busyAfter is when a turn says that it waits for another run.
	busyAfter = time.Second
	// residePoll is how often we look whether another run wants a session
	// that a process of ours keeps.
	residePoll = 200 * time.Millisecond
)

// earliest is the earliest of several times, zero until there is one.
type earliest struct{ time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && (e.IsZero() || t.Before(e.Time)) {
		e.Time = t
	}
}

// attentive reports whether the agent works on the turn, or should: it has the
// prompt, runs, and was not asked to end.
func (s *session) attentive() bool {
	return s.spoken() && s.state.process == processAlive
}

// deadline is when tick has something to do, or zero.
func (s *session) deadline() time.Time {
	var next earliest
	if s.limits.Wall > 0 && s.state.run == runOpen {
		next.add(s.born.Add(s.limits.Wall))
	}
	next.add(s.turns.Deadline())
	switch p := s.proc; s.state.process {
	case processStopping:
		next.add(p.ladder.at)
	case processExited:
		if !p.gone() {
			next.add(p.drainAt.Add(drainTime))
		}
	case processAlive:
		if s.resides() {
			next.add(s.lock.looked.Add(residePoll))
		}
	}
	if !s.lock.since.IsZero() {
		next.add(s.lock.since.Add(busyAfter))
	}
	if !s.attentive() {
		return next.Time
	}
	p := s.cur.Value
	switch {
	case !p.resultAt.IsZero() && !s.duplex:
		next.add(p.resultAt.Add(s.exitGrace()))
		return next.Time
	case !s.proc.eofAt.IsZero():
		next.add(s.proc.eofAt.Add(s.exitGrace()))
	}
	if d, _ := s.silence(); d > 0 {
		next.add(s.quietSince().Add(d))
	}
	return next.Time
}

// exitGrace is never zero: an agent that does not exit would keep its turn.
func (s *session) exitGrace() time.Duration {
	return cmp.Or(duration(s.config.ExitGraceMs, DefaultExitGrace), DefaultExitGrace)
}

// quietSince is when the agent was heard last, or was told what it waited for.
func (s *session) quietSince() time.Time {
	if answered := s.turns.Answered(); answered.After(s.cur.Value.heard) {
		return answered
	}
	return s.cur.Value.heard
}

// silence is how long the agent may say nothing now, and what it is doing.
func (s *session) silence() (time.Duration, string) {
	c := s.config.Stall
	switch {
	case s.turns.Asks() > 0:
		return duration(c.HumanMs, DefaultHuman), "waiting for an answer"
	case s.agent.Quiet, s.cur.Value.Acting():
		return duration(c.ToolMs, DefaultTool), "running a tool"
	}
	return duration(c.IdleMs, cmp.Or(s.limits.Idle, DefaultIdle)), "thinking"
}

// tick does what is due.
func (s *session) tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if s.limits.Wall > 0 && s.state.run == runOpen && due(s.born.Add(s.limits.Wall)) {
		text := fmt.Sprintf("the run took longer than %v", s.limits.Wall)
		s.limit = text
		s.speaker().Notice("warning", talk.NoticeTimeout, text)
		s.end(turns.Reason{By: "wall", Outcome: spool.TurnTimeout, Text: text}, 0)
		return
	}
	s.expire(now)
	switch s.state.process {
	case processStopping:
		if due(s.proc.ladder.at) {
			s.escalate()
			return
		}
	case processExited:
		if !s.proc.gone() && due(s.proc.drainAt.Add(drainTime)) {
			s.proc.drainAt = now
			s.proc.child.abandon()
			return
		}
	}
	s.lock.looked = now
	s.yield()
	if !s.lock.since.IsZero() && due(s.lock.since.Add(busyAfter)) {
		s.lock.since = time.Time{}
		s.between.Seq = s.cur.Seq // it belongs to the turn, but must not be held
		s.between.Notice("info", talk.NoticeWaiting, "another run works in this session; waiting for it")
		s.between.Seq = 0
	}
	if s.attentive() {
		s.watch(now, due)
	}
}

// watch ends a turn that takes too long, or whose agent is silent for too long.
func (s *session) watch(now time.Time, due func(time.Time) bool) {
	p := s.cur.Value
	silence, doing := s.silence()
	switch {
	case !p.resultAt.IsZero() && !s.duplex:
		if due(p.resultAt.Add(s.exitGrace())) {
			p.Notice("warning", talk.NoticeLingering, fmt.Sprintf("%s did not exit within %v of its result", s.agent.Name, s.exitGrace()))
			s.stopProcess(stepSignal, 0)
		}
	case !s.proc.eofAt.IsZero() && due(s.proc.eofAt.Add(s.exitGrace())):
		p.Notice("warning", talk.NoticeOutputEnd, fmt.Sprintf("%s closed its output and kept running", s.agent.Name))
		s.cur.Stop(turns.Reason{By: "output", Outcome: spool.TurnCrashed,
			Text: fmt.Sprintf("%s closed its output without a result and kept running", s.agent.Name)})
		s.stopProcess(stepSignal, 0)
	case s.turns.TimedOut(now) != nil:
		text := fmt.Sprintf("the turn took longer than %v", s.cur.Limit())
		p.Notice("warning", talk.NoticeTimeout, text)
		s.halt(turns.Reason{By: "timeout", Outcome: spool.TurnTimeout, Text: text}, 0)
	case silence > 0 && due(s.quietSince().Add(silence)):
		text := fmt.Sprintf("nothing was heard of %s for %v while %s", s.agent.Name, silence, doing)
		p.Notice("warning", talk.NoticeStalled, text)
		s.halt(turns.Reason{By: "stall", Outcome: agent.TurnStalled, Text: text}, 0)
	}
}

// overBudget says what was used up, if anything.
func (s *session) overBudget(spent agent.Spend) string {
	b := s.config.Budget
	switch {
	case b.Tokens > 0 && spent.Tokens() >= b.Tokens:
		return fmt.Sprintf("%d tokens were used; the budget is %d", spent.Tokens(), b.Tokens)
	case b.CostUSD > 0 && spent.CostUSD >= b.CostUSD:
		return fmt.Sprintf("$%.4f were used; the budget is $%.4f", spent.CostUSD, b.CostUSD)
	}
	return ""
}

// checkBudget ends a turn that used up the budget, and a run that filled its
// log.
func (s *session) checkBudget() {
	if s.run.Bytes > s.limits.OutputBytes && s.state.run == runOpen {
		text := fmt.Sprintf("the run wrote more than %d bytes", s.limits.OutputBytes)
		s.speaker().Notice("warning", talk.NoticeOutputLimit, text)
		s.end(turns.Reason{By: "output", Outcome: agent.TurnBudget, Text: text}, 0)
		return
	}
	if !s.attentive() || s.cur.Value.Result() != nil {
		return
	}
	p := s.cur.Value
	r := turns.Reason{By: "budget", Outcome: agent.TurnBudget, Text: s.overBudget(talk.Add(s.run.Spent, p.Used()))}
	if n := s.config.Budget.Steps; n > 0 && p.Used().Steps > n {
		r.Outcome, r.Text = agent.TurnMaxTurns, fmt.Sprintf("the model was asked more than %d times", n)
	}
	if r.Text != "" {
		p.Notice("warning", talk.NoticeBudget, r.Text)
		s.halt(r, 0)
	}
}
