package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/policy"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// session is a run of this engine. One goroutine, in loop, owns everything
// but what mu guards; others leave requests for it.
type session struct {
	config *agent.Config
	runner *talk.Agent
	duplex bool
	limits spool.Limits
	locks  *sessions.Locks  // may be nil
	ledger *sessions.Ledger // may be nil
	judge  *policy.Judge    // may be nil
	// spawn starts a process of the agent.
	spawn func(talk.Command) (child, error)
	run   talk.Run
	cwd   string

	done    chan struct{} // closed when the run has ended
	outcome spool.Outcome // set before that

	mu       sync.Mutex
	requests []request
	waiting  int  // prompts that were taken and are not done
	closed   bool // takes no more prompts
	leader   int  // pid of the last process
	wake     chan struct{}

	queue  []*talk.Turn
	cur    *talk.Turn
	idle   *talk.Turn // writes what belongs to no turn
	ending bool       // the run is to end, whatever waits
	born   time.Time

	// The process, if there is one.
	child child
	conv  talk.Conversation
	exit  *talk.Exit // it has ended
	eof   bool       // so has its output
	quiet bool       // and its standard error
	left  []child
	last  *talk.Exit // of the last process

	// The turn that runs.
	ready     bool // the session is ours, or nobody else's business
	launched  bool
	began     time.Time
	heard     time.Time // of the agent, last
	resultAt  time.Time
	eofAt     time.Time
	drainAt   time.Time // the output of a process that ended was last looked at
	stop      *stopping
	swept     bool // leftovers were dealt with
	unstarted error

	// The lock of the session.
	lease     *sessions.Ticket
	leaseKey  string
	looked    time.Time // whether somebody else wants what we keep
	stamp     uint64    // of the last lease
	stale     bool      // somebody else worked in the session since
	leases    chan leased
	locking   context.CancelFunc // not nil while we wait
	waitSince time.Time

	asks     map[spool.Seq]*openAsk
	verdicts []verdict
	logErr   error
}

var _ engine.Session = (*session)(nil)

// leased is the end of waiting for a lock.
type leased struct {
	lease *sessions.Ticket
	key   string
	err   error
}

// How long it takes for things that should not take long.
const (
	// drainTime is what the output of a process that has ended may take,
	// while somebody else holds its streams.
	drainTime = 2 * time.Second
	// forceTime is what a killed process may take to be gone.
	forceTime = 5 * time.Second
	// busyAfter is when a turn says that it waits for another run.
	busyAfter = time.Second
)

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
		var lines <-chan chunk
		var exits <-chan talk.Exit
		var quiet <-chan struct{}
		if s.child != nil {
			if !s.quiet {
				quiet = s.child.drained()
			}
			if !s.eof && !s.full() {
				lines = s.child.lines()
			}
			if s.exit == nil {
				exits = s.child.exited()
			}
		}
		select {
		case <-s.wake:
			s.serve()
		case c, ok := <-lines:
			if ok {
				s.take(c)
			} else {
				s.eof, s.eofAt = true, time.Now()
			}
		case <-quiet:
			s.quiet = true
		case x := <-exits:
			s.ended(x)
		case l := <-s.leases:
			s.leased(l)
		case <-timer.C:
			s.tick(time.Now())
		}
	}
	s.finish()
}

// full reports whether so much is held back that the agent has to wait.
func (s *session) full() bool { return s.cur != nil && s.cur.HeldBytes() > MaxHeld }

// serve does what others asked for.
func (s *session) serve() {
	s.mu.Lock()
	requests := s.requests
	s.requests = nil
	s.mu.Unlock()
	for _, r := range requests {
		switch {
		case r.control != nil:
			s.control(*r.control)
		case r.input.Kind == spool.InputPrompt:
			s.prompt(r.input)
		case r.input.Kind == spool.InputAnswer:
			s.reply(r.input)
		}
	}
}

// prompt takes a prompt, as the follow-up policy says.
func (s *session) prompt(in *spool.Input) {
	t := talk.NewTurn(&s.run, in.Seq)
	t.ID = in.ID
	if err := json.Unmarshal(in.Data, &t.Prompt); err != nil {
		t.Finish(talk.Result{Outcome: spool.TurnError, Error: err.Error(), Class: agent.ClassUsage})
	}
	policy := s.config.FollowUp
	switch busy := s.cur != nil; {
	case s.ending:
		s.drop(t, spool.TurnCancelled, "the run is ending")
		return
	case busy && policy == agent.FollowReject:
		s.drop(t, spool.TurnRefused, "a turn runs already")
		return
	case busy && policy == agent.FollowSteer && s.launched && s.stop == nil && s.cur.Result() == nil:
		err := s.conv.Steer(t.Prompt, s.cur)
		if err == nil {
			s.write(t, spool.Done{Outcome: spool.TurnOK, EndedBy: "steered"})
			return
		}
		t.Notice("info", talk.NoticeNotSteered, fmt.Sprintf("the prompt waits for the turn to end: %v", err))
	case busy && policy == agent.FollowInterrupt:
		s.halt(spool.TurnInterrupted, "follow_up", "another prompt came", 0)
	}
	s.queue = append(s.queue, t)
}

// drop ends a turn that did not begin.
func (s *session) drop(t *talk.Turn, o spool.TurnOutcome, why string) {
	s.write(t, spool.Done{Outcome: o, Error: why, ErrorClass: agent.ClassStopped})
}

// done1 writes the last event of a turn.
func (s *session) write(t *talk.Turn, d spool.Done) {
	d.ID = t.ID
	d.DurationMs = time.Since(t.Born).Milliseconds()
	d.Resume = s.run.Session
	t.Put(spool.KindDone, d, nil, nil)
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
}

// control does what a control says.
func (s *session) control(c spool.Control) {
	if c.Turn != 0 && (s.cur == nil || s.cur.Seq != c.Turn) {
		for i, t := range s.queue {
			if t.Seq == c.Turn {
				s.queue = append(s.queue[:i], s.queue[i+1:]...)
				s.drop(t, spool.TurnCancelled, "cancelled before it began")
				return
			}
		}
		return // it is over
	}
	switch c.Op {
	case spool.ControlInterrupt:
		if s.cur != nil {
			s.halt(spool.TurnInterrupted, "interrupt", "interrupted", c.Grace)
		}
	case spool.ControlStop:
		s.end(spool.TurnCancelled, "stop", "the run was stopped", c.Grace)
	case spool.ControlKill:
		s.end(spool.TurnCancelled, "kill", "the run was killed", 0)
		s.killNow()
	}
}

// take translates one line.
func (s *session) take(c chunk) {
	t := s.speaker()
	if c.skipped > 0 {
		t.Put(spool.KindNotice, spool.Notice{Level: "warning", Code: talk.NoticeLineTooLong,
			Text: fmt.Sprintf("a line of %d bytes was passed over; the limit is %d", c.skipped, MaxLine)}, c.line, nil)
		return
	}
	if t.Read(s.conv, c.line) {
		s.heard = time.Now()
	}
	s.settle()
	s.checkBudget()
	if t.Result() != nil && s.resultAt.IsZero() {
		s.resultAt = time.Now()
	}
}

// speaker is the turn that what the agent says belongs to.
func (s *session) speaker() *talk.Turn {
	if s.cur != nil && s.launched {
		return s.cur
	}
	return s.idle
}

// advance does what can be done now. It reports false when the run is over.
func (s *session) advance() bool {
	for {
		if err := s.run.Err; err != nil && s.logErr == nil {
			s.logErr = err
			s.end(spool.TurnError, "log", "the log takes no more", 0)
			s.killNow()
		}
		switch {
		case s.cur != nil && s.concluded():
			s.conclude()
		case s.cur == nil && s.child != nil && s.gone():
			s.forgetChild()
		case s.cur != nil && s.ready && !s.launched && s.cur.Result() == nil:
			if !s.speak() {
				return true
			}
		case s.cur != nil:
			return true
		case s.resides() && s.stop != nil: // somebody else comes first
			return true
		case !s.ending && len(s.queue) > 0:
			t := s.queue[0]
			s.queue = s.queue[1:]
			s.begin(t)
		case !s.ending && !s.lastInput():
			return true
		case s.child != nil:
			s.ending = true
			if s.stop == nil {
				s.stop = &stopping{grace: s.grace(0)}
				s.escalate()
			}
			return true
		default:
			return false
		}
	}
}

// lastInput reports whether no prompt can come any more.
func (s *session) lastInput() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && len(s.requests) == 0
}

// begin makes a turn the one that runs.
func (s *session) begin(t *talk.Turn) {
	s.cur = t
	s.began = time.Now()
	s.heard = s.began
	s.ready, s.launched = false, false
	s.resultAt = time.Time{}
	s.run.Base, s.run.BaseKnown = agent.Spend{}, s.run.Session == "" && s.config.Resume == ""
	if t.Result() != nil {
		return
	}
	if text := s.overBudget(s.run.Spent); text != "" {
		t.Finish(talk.Result{Outcome: spool.TurnBudget, Error: text, Class: agent.ClassStopped})
		return
	}
	resume := s.run.Session
	if resume == "" && !s.config.Fork {
		resume = s.config.Resume
	}
	if resume == "" {
		s.ready = true
		return
	}
	if s.lease != nil && s.leaseKey == s.key(resume) { // we kept it
		s.ready = true
		s.setBaseline(s.leaseKey)
		return
	}
	s.lock(resume)
}

// finish ends what is left and writes how the run ended.
func (s *session) finish() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.serve()
	for _, t := range s.queue {
		s.drop(t, spool.TurnCancelled, "the run ended before it began")
	}
	s.unlock()
	left := 0
	for _, c := range s.left {
		left += c.members()
		if err := c.close(); err != nil {
			s.idle.Notice("error", talk.NoticeKillFailed, err.Error())
		}
	}
	if left > 0 {
		s.idle.Notice("info", talk.NoticeTreeKill, leftText(left))
	}
	var e spool.Event
	switch {
	case s.last != nil && s.last.Code >= 0:
		s.outcome = spool.Outcome{Kind: spool.Exited, Code: s.last.Code, Signal: s.last.Signal}
		e = event(spool.KindExited, spool.ExitStatus{Code: s.last.Code, Signal: s.last.Signal})
	case s.last != nil:
		s.outcome = spool.Outcome{Kind: spool.Unknown, Reason: "the exit status of the agent was not told"}
		e = event(spool.KindFailed, spool.Failure{Reason: s.outcome.Reason, Unknown: true})
	default:
		s.outcome = spool.Outcome{Kind: spool.Failed, Reason: "the agent was never started"}
		if s.unstarted != nil {
			s.outcome.Reason = s.unstarted.Error()
		}
		e = event(spool.KindFailed, spool.Failure{Reason: s.outcome.Reason})
	}
	_, _ = s.run.Out.Append(e) // a log that takes no more is completed by its owner
}

func event(kind spool.Kind, payload any) spool.Event {
	data, err := json.Marshal(payload)
	if err != nil { // plain fields always encode
		data = nil
	}
	return spool.Event{Kind: kind, Data: data}
}

func leftText(n int) string {
	if n == 1 {
		return "1 process that the agent left behind was ended"
	}
	return fmt.Sprintf("%d processes that the agent left behind were ended", n)
}
