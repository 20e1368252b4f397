package agents

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/limits"
)

// proc is the agent's process and the conversation with it.
type proc struct {
	child child
	conv  talk.Conversation
	// What is heard of it. Each is nil once it has ended.
	lines  <-chan chunk
	stderr <-chan struct{}
	exits  <-chan talk.Exit

	exit    *talk.Exit // it has exited
	eofAt   time.Time  // its output has ended
	drainAt time.Time  // when the output of an exited process was last looked at
	stale   bool       // another run has spoken in the session since
	swept   bool       // what it left behind was dealt with
	ladder  *ladder    // it is being stopped
}

// streams are what is heard of a process, which may be nil.
func (p *proc) streams() (lines <-chan chunk, exits <-chan talk.Exit, stderr <-chan struct{}) {
	if p == nil {
		return nil, nil, nil
	}
	return p.lines, p.exits, p.stderr
}

// gone reports whether the process has exited and its streams have ended.
func (p *proc) gone() bool {
	return p != nil && p.exit != nil && p.lines == nil && p.stderr == nil
}

// launch starts the agent's process and gives it the prompt.
func (s *session) launch() {
	open := s.agent.Exec
	if s.duplex {
		open = s.agent.Duplex
	}
	p := s.cur.Value
	conv, err := open(talk.Setup{Config: s.config, Cwd: s.cwd, Resume: cmp.Or(s.run.Session, s.config.Resume),
		Fork: s.config.Fork && !s.run.Started, Opening: p.text})
	var cmd talk.Command
	if err == nil {
		cmd, err = conv.Command()
	}
	var c child
	if err == nil {
		c, err = s.spawn(cmd)
	}
	if err != nil {
		s.unstarted = err
		p.Finish(talk.Result{Outcome: spool.TurnError, Error: err.Error(), Class: agent.ClassStart})
		return
	}
	s.proc = &proc{child: c, conv: conv, lines: c.lines(), stderr: c.drained(), exits: c.exited()}
	s.move(&s.state.process, processAlive)
	s.move(&s.state.turn, turnTalking)
	s.inbox.setPid(c.pid())
	s.run.Pid = c.pid()
	conv.Opened(c, p.Turn)
	s.say()
}

// exited notes that the process has exited, or is given up.
func (s *session) exited(x talk.Exit) {
	p := s.proc
	p.exit, p.exits, p.drainAt = &x, nil, time.Now()
	s.move(&s.state.process, processExited)
	s.last = &x
	s.account.Add(x.Used)
	s.inbox.setPid(0)
	for _, n := range limits.Met(&s.limits, x.Refused, x.Throttled) {
		s.tell(n)
	}
	if p.ladder != nil {
		s.sweep()
	}
}

// tell logs a notice that belongs to no turn.
func (s *session) tell(n spool.Notice) {
	b, _ := json.Marshal(n)                                               // a notice always encodes
	_, _ = s.run.Out.Append(spool.Event{Kind: spool.KindNotice, Data: b}) // after an error the run ends
}

// forget lets go of a process that is gone. What it left running lives until
// the run ends, but not in an overlay, which the next process gets.
func (s *session) forget() {
	c := s.proc.child
	left := c.members()
	if left > 0 && !s.overlay {
		s.left = append(s.left, c)
	} else {
		if left > 0 {
			s.between.Notice("info", talk.NoticeTreeKill, leftText(left))
		}
		if err := c.close(); err != nil {
			s.between.Notice("error", talk.NoticeKillFailed, err.Error())
		}
	}
	s.proc = nil
	s.move(&s.state.process, processNone)
	if s.cur == nil { // what it kept is free
		s.unlock()
	}
}

// spare lets a process that was asked to end a turn wait for the next one.
func (s *session) spare() {
	if s.state.process == processStopping {
		s.move(&s.state.process, processAlive)
	}
	s.proc.ladder = nil
}

// resides reports whether a process that waits for the next prompt keeps the
// session to itself, and we its lock.
func (s *session) resides() bool {
	return s.duplex && s.agent.Exclusive && s.lock.ticket != nil && s.cur == nil && s.proc != nil && !s.proc.gone()
}

// yield ends a process that keeps a session which another run waits for.
func (s *session) yield() {
	if s.resides() && s.proc.ladder == nil && s.lock.ticket.Contested() {
		s.stopProcess(stepInBand, 0)
	}
}
