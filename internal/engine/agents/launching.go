package agents

import (
	"fmt"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
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
	open := s.runner.exec
	if s.duplex {
		open = s.runner.duplex
	}
	resume := first(s.run.resume, s.config.Resume)
	conv, err := open(setup{config: s.config, cwd: s.cwd, resume: resume, fork: s.config.Fork && !s.run.started, opening: t.say})
	var cmd command
	if err == nil {
		cmd, err = conv.command()
	}
	var c child
	if err == nil {
		c, err = s.spawn(cmd)
	}
	if err != nil {
		s.unstarted = err
		t.finish(result{outcome: spool.TurnError, err: err.Error(), class: agent.ClassStart})
		return
	}
	s.child, s.conv, s.exit, s.eof, s.quiet = c, conv, nil, false, false
	s.swept = false
	s.mu.Lock()
	s.leader = c.pid()
	s.mu.Unlock()
	s.run.pid = c.pid()
	conv.opened(c, t)
	s.say()
}

// say gives the prompt to the process that runs.
func (s *session) say() {
	s.launched = true
	s.began = time.Now()
	s.heard = s.began
	if err := s.conv.prompt(s.cur.say, s.cur); err != nil {
		s.cur.finish(result{outcome: spool.TurnError, err: fmt.Sprintf("give the prompt to %s: %v", s.runner.name, err), class: agent.ClassProtocol})
	}
	s.settle()
}

// ended notes that the process has.
func (s *session) ended(x exit) {
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
		s.idle.notice("error", NoticeKillFailed, err.Error())
	}
	s.child, s.conv, s.exit, s.eof, s.quiet, s.stop = nil, nil, nil, false, false, nil
	if s.cur == nil { // what it kept is free
		s.unlock()
	}
	s.eofAt, s.drainAt = time.Time{}, time.Time{}
}
