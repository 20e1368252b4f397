package agents

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/turns"
)

// session is a run of this engine. The goroutine of loop owns everything but
// the turns and the inbox, which have locks of their own.
type session struct {
	// Set before the loop begins.
	config *agent.Config
	agent  *talk.Agent
	duplex bool
	limits spool.Limits
	cwd    string
	// isolation is what the run has; nil without a request.
	isolation *spool.Isolation
	// overlay is set if the agent works on a view of its directory, which one
	// process tree has at a time. workspaceDir is empty without a workspace.
	overlay      bool
	workspaceDir string
	spawn        func(talk.Command) (child, error)
	ledger       *sessions.Ledger // may be nil
	turns        *turns.Queue[*prompt, string]
	inbox        inbox

	run     talk.Run
	between *talk.Turn // takes what the agent says between turns

	state struct{ run, turn, process state }
	born  time.Time
	cur   *turns.Turn[*prompt] // nil in turnNone
	proc  *proc                // nil in processNone
	lock  sessionLock
	// answers wait until the agent does not speak.
	answers []answer
	// left are processes that exited and left others behind.
	left      []child
	last      *talk.Exit // of the last process
	unstarted error      // why the last process did not start
	limit     string     // the time limit that stopped the run, for its outcome

	account engine.Account         // what its processes used
	resume  atomic.Pointer[string] // the session, for those outside the loop
	done    chan struct{}          // closed when the run has ended
	outcome spool.Outcome          // set before that
}

var _ engine.Session = (*session)(nil)

// Used implements [engine.Accountable].
func (s *session) Used() *spool.ProcessUse { return s.account.Used() }

// Isolation implements [engine.Isolated].
func (s *session) Isolation() *spool.Isolation { return s.isolation }

// newSession returns a session whose loop has not begun.
func newSession(c *agent.Config, a *talk.Agent, duplex bool, spec *spool.Spec, l spool.Limits, out engine.Sink) *session {
	s := &session{config: c, agent: a, duplex: duplex, limits: l, cwd: spec.Cwd, done: make(chan struct{})}
	s.inbox.wake = make(chan struct{}, 1)
	s.lock.results = make(chan locked, 1)
	s.state.run, s.state.turn, s.state.process = runOpen, turnNone, processNone
	o := turns.Options[*prompt, string]{Append: out.Append, Complete: s.complete}
	if c.Policy != nil {
		o.Decide = s.decide
	}
	s.turns = turns.New(o)
	s.run = talk.Run{Out: out, Agent: a.Name, Cwd: spec.Cwd, Deltas: c.Deltas, KeepRaw: c.Raw, AskTime: askTime(c),
		Transport: string(agent.ModeExec), OnSession: s.learnt, OnAsk: s.asked, OnWithdraw: s.withdrawn}
	if duplex {
		s.run.Transport, s.run.Capabilities = string(agent.ModeDuplex), a.Capabilities
	}
	s.between = talk.NewTurn(&s.run, 0)
	return s
}

// complete adds the session to a done event.
func (s *session) complete(_ *turns.Turn[*prompt], d *spool.Done) {
	if id := s.resume.Load(); id != nil && d.Resume == "" {
		d.Resume = *id
	}
}

// loop is the life of a run.
func (s *session) loop() {
	defer close(s.done)
	s.born = time.Now()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for s.advance() {
		if at := s.deadline(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		lines, exits, stderr := s.proc.streams()
		if s.cur != nil && s.cur.Value.full() {
			lines = nil
		}
		select {
		case <-s.inbox.wake:
			s.serve()
		case c, ok := <-lines:
			if ok {
				s.take(c)
			} else {
				s.proc.lines, s.proc.eofAt = nil, time.Now()
			}
		case <-stderr:
			s.proc.stderr = nil
		case x := <-exits:
			s.exited(x)
		case l := <-s.lock.results:
			s.locked(l)
		case <-timer.C:
			s.tick(time.Now())
		}
	}
	s.finish()
}

// serve does what others asked for.
func (s *session) serve() {
	for _, r := range s.inbox.take() {
		switch {
		case r.control != nil:
			s.control(*r.control)
		case r.prompt != nil:
			s.arrived(r.prompt)
		case r.answer != nil:
			s.reply(*r.answer)
		}
	}
}

// control does what a control says, to the turn or the run that it is about.
func (s *session) control(c control) {
	what := "the run"
	if c.turn != nil {
		if c.turn != s.cur { // it is over
			return
		}
		what = "the turn"
	}
	var r turns.Reason
	switch c.Op {
	case spool.ControlInterrupt:
		r = turns.Reason{By: "interrupt", Outcome: spool.TurnInterrupted, Text: "interrupted"}
	case spool.ControlStop:
		r = turns.Reason{By: "stop", Outcome: spool.TurnCancelled, Text: what + " was stopped"}
	case spool.ControlKill:
		r = turns.Reason{By: "kill", Outcome: spool.TurnKilled, Text: what + " was killed"}
	}
	if c.turn == nil {
		s.end(r, c.Grace)
	} else {
		s.halt(r, c.Grace)
	}
	if c.Op == spool.ControlKill {
		s.killNow()
	}
}

// take translates one line.
func (s *session) take(c chunk) {
	t := s.speaker()
	if c.skipped > 0 {
		t.Put(spool.KindNotice, spool.Notice{Level: "warning", Code: talk.NoticeLineTooLong,
			Text: fmt.Sprintf("a line of %d bytes was passed over; the limit is %d", c.skipped, MaxLine)}, c.line)
		return
	}
	if t.Read(s.proc.conv, c.line) && s.cur != nil {
		s.cur.Value.heard = time.Now()
	}
	s.settle()
	s.checkBudget()
}

// spoken reports whether the agent has the prompt of the turn that runs.
func (s *session) spoken() bool {
	return s.state.turn.in(turnTalking, turnHeld, turnAnswered)
}

// speaker is the turn that what the agent says belongs to.
func (s *session) speaker() *talk.Turn {
	if s.spoken() {
		return s.cur.Value.Turn
	}
	return s.between
}

// advance does what can be done now. It reports false when the run is over.
func (s *session) advance() bool {
	for {
		// Before the queue: a prompt that arrives after this look at it, and
		// the end of prompts after that, must not end the run.
		shut := s.shut()
		s.checkLog()
		s.noteResult()
		if id := s.run.Session; id != "" {
			s.resume.Store(&id)
		}
		switch {
		case s.cur != nil && s.concluded():
			s.conclude()
		case s.cur == nil && s.proc.gone():
			s.forget()
		case s.state.turn == turnReady:
			if !s.speak() {
				return true
			}
		case s.cur != nil:
			return true
		case s.resides() && s.state.process == processStopping: // another run comes first
			return true
		case s.state.run == runOpen && s.turns.Len() > 0:
			if t := s.turns.Next(); t != nil {
				s.begin(t)
			}
		case s.state.run == runOpen && !shut:
			return true
		default:
			if s.state.run == runOpen {
				s.move(&s.state.run, runEnding)
			}
			if s.proc == nil {
				return false
			}
			s.stopProcess(stepInBand, 0)
			return true
		}
	}
}

// checkLog ends a run whose log takes no more.
func (s *session) checkLog() {
	err := s.run.Err
	if err == nil {
		err = s.turns.Err()
	}
	if err == nil || s.state.run != runOpen {
		return
	}
	s.end(turns.Reason{By: "log", Outcome: spool.TurnError, Text: "the log takes no more"}, 0)
	s.killNow()
}

// shut reports whether no prompt can come any more.
func (s *session) shut() bool { return errors.Is(s.turns.Takes(), spool.ErrInputClosed) }

// end ends the run: the turn that runs and all that wait.
func (s *session) end(r turns.Reason, grace time.Duration) {
	if s.state.run == runOpen {
		s.move(&s.state.run, runEnding)
	}
	s.turns.Shut()
	s.drop(r)
	s.halt(r, grace)
}

// drop ends the turns that wait.
func (s *session) drop(r turns.Reason) {
	d := spool.Done{Outcome: spool.TurnCancelled, EndedBy: r.By, Error: "the turn was not run: " + r.Text, ErrorClass: turns.ClassNotRun}
	if r.Outcome == spool.TurnKilled {
		d.Outcome = r.Outcome
	}
	s.turns.Drop(d)
}

// finish ends what is left and writes how the run ended.
func (s *session) finish() {
	s.turns.Shut()
	s.serve()
	s.drop(turns.Reason{Text: "the run ended"})
	s.turns.CloseAsks(spool.Notice{By: "agent", Text: "the run ended"})
	s.unlock()
	left := 0
	for _, c := range s.left {
		left += c.members()
		if err := c.close(); err != nil {
			s.between.Notice("error", talk.NoticeKillFailed, err.Error())
		}
	}
	if left > 0 {
		s.between.Notice("info", talk.NoticeTreeKill, leftText(left))
	}
	switch {
	case s.last != nil && s.last.Code >= 0:
		s.outcome = spool.Outcome{Kind: spool.Exited, Code: s.last.Code, Signal: s.last.Signal, Reason: s.limit}
	case s.last != nil:
		s.outcome = spool.Outcome{Kind: spool.Unknown, Reason: "the exit status of the agent was not told"}
	default:
		s.outcome = spool.Outcome{Kind: spool.Failed, Reason: "the agent was never started"}
		if s.unstarted != nil {
			s.outcome.Reason = s.unstarted.Error()
		}
	}
	s.move(&s.state.run, runEnded)
	_, _ = s.run.Out.Append(s.outcome.Event()) // a log that takes no more is completed by its owner
}

func leftText(n int) string {
	if n == 1 {
		return "1 process that the agent left behind was ended"
	}
	return fmt.Sprintf("%d processes that the agent left behind were ended", n)
}
