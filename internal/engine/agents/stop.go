package agents

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// stopping is a turn, or an idle process, that is being ended. Each step is
// stronger than the one before and comes when that did not help in time.
type stopping struct {
	// outcome is that of the turn, unless the agent itself says that it
	// succeeded. Empty leaves it to the agent.
	outcome spool.TurnOutcome
	endedBy string
	text    string
	grace   time.Duration
	step    step
	at      time.Time // of the next step
	used    string    // the strongest means until now
}

type step int

const (
	stepInBand step = iota // in the agent's own protocol
	stepSignal             // on which the agent ends well
	stepTerm
	stepKill
	stepGiveUp
)

// The values of [spool.Done.StoppedWith], besides the names of signals.
const (
	StoppedInBand = "in_band"
	StoppedEOF    = "eof" // the end of its input
	StoppedKill   = "kill"
)

func (s *session) grace(asked time.Duration) time.Duration {
	return cmp.Or(asked, s.limits.Grace, DefaultGrace)
}

// halt ends the turn that runs. Asked a second time, it uses stronger means at
// once.
func (s *session) halt(o spool.TurnOutcome, by, text string, grace time.Duration) {
	if s.cur == nil {
		return
	}
	if !s.launched || s.child == nil { // there is nothing to end but the waiting
		s.unlockWait()
		if s.stop == nil {
			s.stop = &stopping{grace: s.grace(grace)}
		}
		s.stop.endedBy = by
		s.cur.Finish(talk.Result{Outcome: o, Error: text, Class: agent.ClassStopped})
		return
	}
	if s.stop != nil {
		if s.stop.outcome == "" || by == "stop" || by == "kill" {
			s.stop.outcome, s.stop.endedBy, s.stop.text = o, by, text
		}
		if grace > 0 {
			s.stop.grace = grace
		}
		if by == "interrupt" || by == "stop" {
			s.escalate()
		}
		return
	}
	if s.cur.Result() != nil { // it only does not exit: its last word stands
		o = ""
	}
	s.stop = &stopping{outcome: o, endedBy: by, text: text, grace: s.grace(grace)}
	if s.cur.Held() {
		s.unlockWait()
	}
	s.escalate()
}

// end ends the run: the turn that runs and all that wait.
func (s *session) end(o spool.TurnOutcome, by, text string, grace time.Duration) {
	s.ending = true
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, t := range s.queue {
		s.drop(t, spool.TurnCancelled, text)
	}
	s.queue = nil
	s.halt(o, by, text, grace)
}

// killNow goes straight to the strongest means.
func (s *session) killNow() {
	if s.child == nil {
		return
	}
	if s.stop == nil {
		s.stop = &stopping{grace: s.grace(0)}
	}
	s.stop.step = max(s.stop.step, stepKill)
	s.escalate()
}

// escalate takes the next step.
func (s *session) escalate() {
	p := s.stop
	now := time.Now()
	patience := duration(s.config.CancelGraceMs, DefaultCancelGrace)
	for s.child != nil {
		this := p.step
		p.step++
		switch this {
		case stepInBand:
			if s.cur == nil || !s.launched { // idle: the end of its input ends it
				s.child.CloseInput()
				p.used, p.at = StoppedEOF, now.Add(patience)
				return
			}
			if s.exit == nil && s.cur.Result() == nil && s.conv.Interrupt(s.cur) == nil {
				p.used, p.at = StoppedInBand, now.Add(patience)
				return
			}
		case stepSignal:
			if s.runner.Signal == syscall.SIGTERM || s.runner.Signal == 0 {
				continue
			}
			if s.child.signal(s.runner.Signal) == nil {
				p.used, p.at = signalName(s.runner.Signal), now.Add(patience)
				return
			}
		case stepTerm:
			if s.child.signal(syscall.SIGTERM) == nil {
				p.used, p.at = "SIGTERM", now.Add(p.grace)
				return
			}
		case stepKill:
			s.killTree()
			p.used, p.at = StoppedKill, now.Add(forceTime)
			return
		default:
			if s.exit == nil {
				s.ended(talk.Exit{Code: -1})
				s.speaker().Notice("error", talk.NoticeKillFailed, fmt.Sprintf("process %d does not end", s.child.pid()))
			}
			s.child.abandon()
			p.at = time.Time{}
			return
		}
	}
}

func signalName(sig syscall.Signal) string {
	switch sig {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	}
	return strings.ToUpper(sig.String())
}

func (s *session) killTree() {
	if err := s.child.kill(); err != nil {
		s.speaker().Notice("error", talk.NoticeKillFailed, err.Error())
	}
}

// sweep ends what a process that we stopped has left behind: agents put their
// commands into sessions of their own, where no signal of the group arrives.
func (s *session) sweep() {
	if s.swept {
		return
	}
	s.swept = true
	if n := s.child.members(); n > 0 {
		s.speaker().Notice("info", talk.NoticeTreeKill, leftText(n))
		s.killTree()
	}
}

// deadline is when something has to be looked at next.
func (s *session) deadline() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.limits.Wall > 0 && !s.ending {
		sooner(s.born.Add(s.limits.Wall))
	}
	if s.stop != nil && s.child != nil && s.exit == nil {
		sooner(s.stop.at)
	}
	if s.child != nil && s.exit != nil && !s.gone() {
		sooner(s.drainAt.Add(drainTime))
	}
	if s.resides() && s.stop == nil {
		sooner(s.looked.Add(residePoll))
	}
	if s.cur == nil {
		return next
	}
	if !s.waitSince.IsZero() {
		sooner(s.waitSince.Add(busyAfter))
	}
	if s.stop != nil || !s.launched || s.exit != nil {
		return next
	}
	switch {
	case s.cur.Result() != nil && !s.duplex:
		sooner(s.resultAt.Add(s.exitGrace()))
		return next
	case s.eof:
		sooner(s.eofAt.Add(s.exitGrace()))
	}
	if d := s.turnTime(); d > 0 {
		sooner(s.began.Add(d))
	}
	if d, _ := s.silence(); d > 0 {
		sooner(s.heard.Add(d))
	}
	for _, a := range s.asks {
		sooner(a.deadline)
	}
	return next
}

// exitGrace is never nothing: an agent that does not exit would keep its turn.
func (s *session) exitGrace() time.Duration {
	return cmp.Or(duration(s.config.ExitGraceMs, DefaultExitGrace), DefaultExitGrace)
}

// turnTime is how long the turn may take.
func (s *session) turnTime() time.Duration {
	return duration(cmp.Or(s.cur.Prompt.TimeoutMs, s.config.TurnTimeoutMs), 0)
}

// silence is how long the agent may say nothing now, and what it is doing.
func (s *session) silence() (time.Duration, string) {
	c := s.config.Stall
	switch {
	case len(s.asks) > 0:
		return duration(c.HumanMs, DefaultHuman), "waiting for an answer"
	case s.runner.Quiet, s.cur.Acting():
		return duration(c.ToolMs, DefaultTool), "running a tool"
	}
	return duration(c.IdleMs, cmp.Or(s.limits.Idle, DefaultIdle)), "thinking"
}

// tick looks at the clock.
func (s *session) tick(now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if s.limits.Wall > 0 && !s.ending && due(s.born.Add(s.limits.Wall)) {
		text := fmt.Sprintf("the run took longer than %v", s.limits.Wall)
		s.speaker().Notice("warning", talk.NoticeTimeout, text)
		s.end(spool.TurnTimeout, "wall", text, 0)
		return
	}
	if s.stop != nil && s.child != nil && s.exit == nil && due(s.stop.at) {
		s.escalate()
		return
	}
	if s.child != nil && s.exit != nil && !s.gone() && due(s.drainAt.Add(drainTime)) {
		s.drainAt = now
		s.child.abandon()
		return
	}
	s.looked = now
	s.yield()
	if s.cur == nil {
		return
	}
	if !s.waitSince.IsZero() && due(s.waitSince.Add(busyAfter)) {
		s.waitSince = time.Time{}
		s.idle.Seq = s.cur.Seq // it belongs to the turn, but must not be held
		s.idle.Notice("info", talk.NoticeWaiting, "another run works in this session; waiting for it")
		s.idle.Seq = 0
	}
	if s.stop != nil || !s.launched || s.exit != nil {
		return
	}
	s.expire(now)
	silence, doing := s.silence()
	switch {
	case s.cur.Result() != nil && !s.duplex:
		if due(s.resultAt.Add(s.exitGrace())) {
			s.cur.Notice("warning", talk.NoticeLingering, fmt.Sprintf("%s did not exit within %v of its result", s.runner.Name, s.exitGrace()))
			s.stop = &stopping{grace: s.grace(0), step: stepSignal}
			s.escalate()
		}
	case s.eof && due(s.eofAt.Add(s.exitGrace())):
		s.cur.Notice("warning", talk.NoticeOutputEnd, fmt.Sprintf("%s closed its output and kept running", s.runner.Name))
		s.stop = &stopping{grace: s.grace(0), step: stepSignal, outcome: spool.TurnCrashed, endedBy: "output",
			text: fmt.Sprintf("%s closed its output without a result and kept running", s.runner.Name)}
		s.escalate()
	case s.turnTime() > 0 && due(s.began.Add(s.turnTime())):
		text := fmt.Sprintf("the turn took longer than %v", s.turnTime())
		s.cur.Notice("warning", talk.NoticeTimeout, text)
		s.halt(spool.TurnTimeout, "timeout", text, 0)
	case silence > 0 && due(s.heard.Add(silence)):
		text := fmt.Sprintf("nothing was heard of %s for %v while %s", s.runner.Name, silence, doing)
		s.cur.Notice("warning", talk.NoticeStalled, text)
		s.halt(spool.TurnStalled, "stall", text, 0)
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
	if s.run.Bytes > s.limits.OutputBytes && !s.ending {
		text := fmt.Sprintf("the run wrote more than %d bytes", s.limits.OutputBytes)
		s.speaker().Notice("warning", talk.NoticeOutputLimit, text)
		s.end(spool.TurnBudget, "output", text, 0)
		return
	}
	if s.cur == nil || !s.launched || s.stop != nil || s.cur.Result() != nil {
		return
	}
	if n := s.config.Budget.Steps; n > 0 && s.cur.Used().Steps > n {
		text := fmt.Sprintf("the model was asked more than %d times", n)
		s.cur.Notice("warning", talk.NoticeBudget, text)
		s.halt(spool.TurnMaxTurns, "budget", text, 0)
		return
	}
	if text := s.overBudget(talk.Add(s.run.Spent, s.cur.Used())); text != "" {
		s.cur.Notice("warning", talk.NoticeBudget, text)
		s.halt(spool.TurnBudget, "budget", text, 0)
	}
}
