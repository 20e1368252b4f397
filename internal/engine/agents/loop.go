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
)

// session is a run of this engine. One goroutine, in loop, owns everything
// but what mu guards; others leave requests for it.
type session struct {
	config *Config
	runner *runner
	duplex bool
	limits spool.Limits
	locks  locker // may be nil
	ledger ledger // may be nil
	judge  judge  // may be nil
	// spawn starts a process of the agent.
	spawn func(command) (child, error)
	run   shared
	cwd   string

	done    chan struct{} // closed when the run has ended
	outcome spool.Outcome // set before that

	mu       sync.Mutex
	requests []request
	waiting  int  // prompts that were taken and are not done
	closed   bool // takes no more prompts
	leader   int  // pid of the last process
	wake     chan struct{}

	queue  []*turn
	cur    *turn
	idle   *turn // writes what belongs to no turn
	ending bool  // the run is to end, whatever waits
	born   time.Time

	// The process, if there is one.
	child child
	conv  conversation
	exit  *exit // it has ended
	eof   bool  // so has its output
	quiet bool  // and its standard error
	left  []child
	last  *exit // of the last process

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
	lease     lease
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
	lease lease
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
		var exits <-chan exit
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
func (s *session) full() bool { return s.cur != nil && s.cur.size > MaxHeld }

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
	t := newTurn(&s.run, in.Seq)
	t.id = in.ID
	if err := json.Unmarshal(in.Data, &t.say); err != nil {
		t.finish(result{outcome: spool.TurnError, err: err.Error(), class: agent.ClassUsage})
	}
	policy := s.config.FollowUp
	switch busy := s.cur != nil; {
	case s.ending:
		s.drop(t, spool.TurnCancelled, "the run is ending")
		return
	case busy && policy == FollowReject:
		s.drop(t, spool.TurnRefused, "a turn runs already")
		return
	case busy && policy == FollowSteer && s.launched && s.stop == nil && s.cur.result == nil:
		err := s.conv.steer(t.say, s.cur)
		if err == nil {
			s.write(t, spool.Done{Outcome: spool.TurnOK, EndedBy: "steered"})
			return
		}
		t.notice("info", NoticeNotSteered, fmt.Sprintf("the prompt waits for the turn to end: %v", err))
	case busy && policy == FollowInterrupt:
		s.halt(spool.TurnInterrupted, "follow_up", "another prompt came", 0)
	}
	s.queue = append(s.queue, t)
}

// drop ends a turn that did not begin.
func (s *session) drop(t *turn, o spool.TurnOutcome, why string) {
	s.write(t, spool.Done{Outcome: o, Error: why, ErrorClass: agent.ClassStopped})
}

// done1 writes the last event of a turn.
func (s *session) write(t *turn, d spool.Done) {
	d.ID = t.id
	d.DurationMs = time.Since(t.born).Milliseconds()
	d.Resume = s.run.resume
	t.put(spool.KindDone, d, nil, nil)
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
}

// control does what a control says.
func (s *session) control(c spool.Control) {
	if c.Turn != 0 && (s.cur == nil || s.cur.seq != c.Turn) {
		for i, t := range s.queue {
			if t.seq == c.Turn {
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
		t.put(spool.KindNotice, spool.Notice{Level: "warning", Code: NoticeLineTooLong,
			Text: fmt.Sprintf("a line of %d bytes was passed over; the limit is %d", c.skipped, MaxLine)}, c.line, nil)
		return
	}
	if s.run.keepRaw {
		t.raw = c.line
	}
	s.conv.line(c.line, t)
	if !t.stuck {
		s.heard = time.Now()
	}
	t.stuck = false
	s.settle()
	s.checkBudget()
	if t.result != nil && s.resultAt.IsZero() {
		s.resultAt = time.Now()
	}
}

// speaker is the turn that what the agent says belongs to.
func (s *session) speaker() *turn {
	if s.cur != nil && s.launched {
		return s.cur
	}
	return s.idle
}

// advance does what can be done now. It reports false when the run is over.
func (s *session) advance() bool {
	for {
		if err := s.run.err; err != nil && s.logErr == nil {
			s.logErr = err
			s.end(spool.TurnError, "log", "the log takes no more", 0)
			s.killNow()
		}
		switch {
		case s.cur != nil && s.concluded():
			s.conclude()
		case s.cur == nil && s.child != nil && s.gone():
			s.forgetChild()
		case s.cur != nil && s.ready && !s.launched && s.cur.result == nil:
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
func (s *session) begin(t *turn) {
	s.cur = t
	s.began = time.Now()
	s.heard = s.began
	s.ready, s.launched = false, false
	s.resultAt = time.Time{}
	s.run.base, s.run.baseKnown = agent.Spend{}, s.run.resume == "" && s.config.Resume == ""
	if t.result != nil {
		return
	}
	if text := s.overBudget(s.run.spent); text != "" {
		t.finish(result{outcome: spool.TurnBudget, err: text, class: agent.ClassStopped})
		return
	}
	resume := s.run.resume
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
			s.idle.notice("error", NoticeKillFailed, err.Error())
		}
	}
	if left > 0 {
		s.idle.notice("info", NoticeTreeKill, leftText(left))
	}
	var e spool.Event
	switch {
	case s.last != nil && s.last.code >= 0:
		s.outcome = spool.Outcome{Kind: spool.Exited, Code: s.last.code, Signal: s.last.signal}
		e = event(spool.KindExited, spool.ExitStatus{Code: s.last.code, Signal: s.last.signal})
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
	_, _ = s.run.out.Append(e) // a log that takes no more is completed by its owner
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
