package agents

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// speak gives the prompt to the process that lives, or to a new one. It
// reports false if it has to wait for the old one to end.
func (s *session) speak() bool {
	switch {
	case s.child == nil:
		s.launch()
	case s.gone():
		s.forgetChild()
	case !s.stale && s.exit == nil && !s.eof:
		s.say()
	case s.stop == nil && s.exit == nil:
		// Another has spoken in the session, or this one says nothing
		// any more: a new process has to take over.
		s.stop = &stopping{grace: s.grace(0)}
		s.escalate()
		return false
	default:
		return false
	}
	return true
}

// launch starts the agent's process and gives it the prompt.
func (s *session) launch() {
	t := s.cur
	s.stale, s.launched = false, true
	open := s.runner.Exec
	if s.duplex {
		open = s.runner.Duplex
	}
	resume := cmp.Or(s.run.Session, s.config.Resume)
	conv, err := open(talk.Setup{Config: s.config, Cwd: s.cwd, Resume: resume, Fork: s.config.Fork && !s.run.Started, Opening: t.Prompt})
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
		t.Finish(talk.Result{Outcome: spool.TurnError, Error: err.Error(), Class: agent.ClassStart})
		return
	}
	s.child, s.conv, s.exit, s.eof, s.quiet = c, conv, nil, false, false
	s.swept = false
	s.mu.Lock()
	s.leader = c.pid()
	s.mu.Unlock()
	s.run.Pid = c.pid()
	conv.Opened(c, t)
	s.say()
}

// say gives the prompt to the process that runs.
func (s *session) say() {
	s.launched = true
	s.began = time.Now()
	s.heard = s.began
	if err := s.conv.Prompt(s.cur.Prompt, s.cur); err != nil {
		s.cur.Finish(talk.Result{Outcome: spool.TurnError, Error: fmt.Sprintf("give the prompt to %s: %v", s.runner.Name, err), Class: agent.ClassProtocol})
	}
	s.settle()
}

// ended notes that the process has.
func (s *session) ended(x talk.Exit) {
	s.exit, s.drainAt = &x, time.Now()
	s.last = &x
	s.mu.Lock()
	s.leader = 0
	s.mu.Unlock()
	if s.stop != nil {
		s.sweep()
	}
}

// gone reports whether the process has ended and all it had to say, too.
func (s *session) gone() bool { return s.child != nil && s.exit != nil && s.eof && s.quiet }

// forgetChild lets go of a process that has ended. What it left running lives
// until the run ends.
func (s *session) forgetChild() {
	if s.child.members() > 0 {
		s.left = append(s.left, s.child)
	} else if err := s.child.close(); err != nil {
		s.idle.Notice("error", talk.NoticeKillFailed, err.Error())
	}
	s.child, s.conv, s.exit, s.eof, s.quiet, s.stop = nil, nil, nil, false, false, nil
	if s.cur == nil { // what it kept is free
		s.unlock()
	}
	s.eofAt, s.drainAt = time.Time{}, time.Time{}
}
