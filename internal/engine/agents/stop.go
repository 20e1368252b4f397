package agents

import (
	"cmp"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/turns"
)

// ladder is how a process is stopped. Each step is stronger than the one before
// and comes when that did not help in time.
type ladder struct {
	grace time.Duration
	step  step      // the next one
	at    time.Time // when it is due
	used  string    // the strongest means until now
}

// ends reports whether the process will end: it was sent more than an interrupt in its
// own protocol. It may still tell a result, but takes no other prompt.
func (l *ladder) ends() bool {
	return l != nil && l.used != "" && l.used != StoppedInBand
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
func (s *session) halt(r turns.Reason, grace time.Duration) {
	t := s.cur
	if t == nil {
		return
	}
	p := t.Value
	byPerson := r.By == "stop" || r.By == "kill"
	if p.Result() == nil && !t.Stop(r) && byPerson { // a result stands
		t.Override(r)
	}
	if !s.spoken() { // there is nothing to end but the waiting
		s.lock.giveUp()
		p.Finish(talk.Result{Outcome: r.Outcome, Error: r.Text, Class: agent.ClassStopped})
		return
	}
	if s.proc.ladder == nil {
		if s.state.turn == turnHeld {
			s.lock.giveUp()
		}
		s.stopProcess(stepInBand, grace)
		return
	}
	if grace > 0 {
		s.proc.ladder.grace = grace
	}
	if r.By == "interrupt" || r.By == "stop" {
		s.escalate()
	}
}

// stopProcess begins to stop the process, unless that was begun already.
func (s *session) stopProcess(from step, grace time.Duration) {
	if s.proc.ladder != nil {
		return
	}
	s.proc.ladder = &ladder{grace: s.grace(grace), step: from}
	if s.state.process == processAlive {
		s.move(&s.state.process, processStopping)
	}
	s.escalate()
}

// killNow goes straight to the strongest means.
func (s *session) killNow() {
	if s.proc == nil {
		return
	}
	if s.proc.ladder == nil {
		s.stopProcess(stepKill, 0)
		return
	}
	s.proc.ladder.step = max(s.proc.ladder.step, stepKill)
	s.escalate()
}

// escalate takes the next step.
func (s *session) escalate() {
	p, l := s.proc, s.proc.ladder
	now := time.Now()
	patience := duration(s.config.CancelGraceMs, DefaultCancelGrace)
	for {
		this := l.step
		l.step++
		switch this {
		case stepInBand:
			if !s.spoken() { // the end of its input ends a process that has nothing to do
				p.child.CloseInput()
				l.used, l.at = StoppedEOF, now.Add(patience)
				return
			}
			t := s.cur.Value
			if p.exit == nil && t.Result() == nil && p.conv.Interrupt(t.Turn) == nil {
				l.used, l.at = StoppedInBand, now.Add(patience)
				return
			}
		case stepSignal:
			if s.agent.Signal == syscall.SIGTERM || s.agent.Signal == 0 {
				continue
			}
			if p.child.signal(s.agent.Signal) == nil {
				l.used, l.at = signalName(s.agent.Signal), now.Add(patience)
				return
			}
		case stepTerm:
			if p.child.signal(syscall.SIGTERM) == nil {
				l.used, l.at = "SIGTERM", now.Add(l.grace)
				return
			}
		case stepKill:
			s.killTree()
			l.used, l.at = StoppedKill, now.Add(forceTime)
			return
		default:
			if p.exit == nil {
				s.exited(talk.Exit{Code: -1})
				s.speaker().Notice("error", talk.NoticeKillFailed, fmt.Sprintf("process %d does not end", p.child.pid()))
			}
			p.child.abandon()
			l.at = time.Time{}
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
	if err := s.proc.child.kill(); err != nil {
		s.speaker().Notice("error", talk.NoticeKillFailed, err.Error())
	}
}

// sweep ends what a process that we stopped has left behind: agents put their
// commands into sessions of their own, where no signal of the group arrives.
func (s *session) sweep() {
	if s.proc.swept {
		return
	}
	s.proc.swept = true
	if n := s.proc.child.members(); n > 0 {
		s.speaker().Notice("info", talk.NoticeTreeKill, leftText(n))
		s.killTree()
	}
}
