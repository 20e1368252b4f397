package kernel

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/turns"
)

// The means to end a turn, from weak to strong.
var means = []string{"", "interrupt", "interrupt", "terminate", "kill"}

func (c *cell) means() string { return means[c.strength] }

// control does what a control says, or begins to.
func (s *session) control(c *spool.Control) error {
	effect, t := s.turns.Control(*c)
	switch {
	case effect == turns.None:
		return nil
	case effect == turns.OnTurn && c.Op == spool.ControlInterrupt:
		s.stopTurn(t, "interrupt", s.steps.within(c.Grace))
		return nil
	case effect == turns.OnTurn && c.Op == spool.ControlStop:
		s.stopTurn(t, "stop", s.steps.within(c.Grace))
		return nil
	case effect == turns.OnTurn && c.Op == spool.ControlKill:
		s.killTurn(t)
		return nil
	}
	switch c.Op {
	case spool.ControlSignal:
		if s.py == nil {
			return spool.ErrEnded
		}
		sig := unix.SignalNum(signalName(c.Signal))
		if sig == 0 {
			return fmt.Errorf("signal %q: %w", c.Signal, spool.ErrInvalid)
		}
		if err := s.py.tree.SignalGroup(sig); errors.Is(err, os.ErrProcessDone) {
			return spool.ErrEnded
		} else if err != nil {
			return err
		}
	case spool.ControlRestart:
		s.begin(c.Op)
	case spool.ControlStop:
		grace := s.limits.Grace
		if c.Grace > 0 {
			grace = c.Grace
		}
		s.stop(grace)
	case spool.ControlKill:
		s.kill()
	}
	return nil
}

// stopTurn asks the turn to end and begins the schedule of stronger means. A
// second request does not begin it again, but may make it shorter.
func (s *session) stopTurn(t *turn, by string, steps schedule) {
	c, now := t.Value, time.Now()
	if !t.Stop(turns.Reason{By: by, At: now}) {
		if now.Add(steps.kill).Before(c.asked.Add(c.steps.kill)) {
			c.asked, c.steps = now, steps
		}
		s.signal(unix.SIGINT)
		return
	}
	c.asked, c.steps, c.strength = now, steps, 1
	s.unblock()
	s.interrupt(t)
}

// killTurn ends the turn with the interpreter that runs it. The next turn gets
// a fresh one.
func (s *session) killTurn(t *turn) {
	if s.py == nil || s.ending != nil {
		return
	}
	if why := (turns.Reason{By: "kill"}); !t.Stop(why) {
		t.Override(why)
	}
	t.Value.strength = 4
	s.unblock()
	s.end()
}

// interrupt interrupts the turn. The signal may come before the cell has
// begun; the message says which one is meant, and is there before it.
func (s *session) interrupt(t *turn) {
	s.send(dict{"t": "stop", "id": int64(t.Seq)})
	s.write()
	s.signal(unix.SIGINT)
}

// signal signals the main thread of the interpreter, which is the one that
// acts on it: what another thread took would not wake it from a system call.
func (s *session) signal(sig unix.Signal) {
	if s.py != nil {
		// It cannot be reaped meanwhile: that is done here, too.
		_ = unix.Tgkill(s.py.tree.Pid(), s.py.tree.Pid(), sig)
	}
}

// end kills the interpreter. Its exit says the rest; if that does not come,
// tend sees to it.
func (s *session) end() {
	if s.py.killed.IsZero() {
		s.py.killed = time.Now()
	}
	_ = s.py.tree.Kill()
}

// dumpSignal has the interpreter write down what it is doing.
const dumpSignal = unix.Signal(60)

// escalate uses stronger means against a turn that should have ended.
func (s *session) escalate(now time.Time) {
	t := s.turns.Running()
	if t == nil || t.State() != turns.Stopping || s.py == nil {
		return
	}
	c := t.Value
	since := now.Sub(c.asked)
	if c.strength < 4 && since >= c.steps.terminate {
		// It may have ended while nobody looked.
		s.settle()
		s.receive(false)
		if s.turns.Running() != t || s.py == nil {
			return
		}
	}
	switch {
	case c.strength < 4 && since >= c.steps.kill:
		c.strength = 4
		s.note(c, "killed")
		s.end()
	case c.strength < 3 && since >= c.steps.terminate:
		c.strength = 3
		s.note(c, "sent SIGTERM")
		s.signal(unix.SIGTERM)
	case c.strength < 2 && since >= c.steps.again:
		c.strength = 2
		s.signal(dumpSignal)
		s.note(c, "interrupted again")
		// Its children, too: it may be waiting for one of them.
		_ = s.py.tree.SignalGroup(unix.SIGINT)
		s.signal(unix.SIGINT)
	}
}

// note says that a turn did not end, and what it was doing.
func (s *session) note(c *cell, what string) {
	n := spool.Notice{Code: NoticeEscalated, Level: "warning", Text: fmt.Sprintf("the cell did not end; it is %s after %v", what, time.Since(c.asked).Round(time.Millisecond))}
	if c.strength > 2 {
		if stack := s.py.stack(); stack != "" {
			n.Text += "; it was here:\n" + stack
		}
	}
	s.notice(n)
}

// nextStep is when escalate has something to do.
func (c *cell) nextStep() time.Time {
	switch c.strength {
	case 1:
		return c.asked.Add(c.steps.again)
	case 2:
		return c.asked.Add(c.steps.terminate)
	case 3:
		return c.asked.Add(c.steps.kill)
	}
	return time.Time{}
}

// reapTime is how long after a kill an interpreter may take to be gone.
const reapTime = 2 * time.Second

// begin replaces the interpreter by a fresh one.
func (s *session) begin(op spool.ControlOp) {
	s.restarting = true
	if s.py != nil {
		s.end()
		return
	}
	if s.starting == nil {
		s.restarting = false
		s.restart()
	}
}

// stop ends the run: it asks, then terminates, then kills.
func (s *session) stop(grace time.Duration) {
	now := time.Now()
	if s.ending != nil {
		if now.Add(grace).Before(s.ending.at.Add(s.ending.grace)) {
			s.ending.at, s.ending.grace = now, grace
		}
		return
	}
	s.beginEnd(now, grace)
	if s.py == nil {
		return
	}
	if t := s.turns.Running(); t != nil && t.Stop(turns.Reason{By: "stop", At: now}) {
		t.Value.asked, t.Value.strength = now, 1 // more follows by the steps below
		s.interrupt(t)
	}
	s.send(dict{"t": "exit"})
}

// beginEnd lets nothing begin any more.
func (s *session) beginEnd(now time.Time, grace time.Duration) {
	s.ending = &ending{at: now, grace: grace}
	s.unblock()
	if s.starting != nil {
		s.starting()
	}
}

// kill ends the run now.
func (s *session) kill() {
	now := time.Now()
	if s.ending == nil {
		s.beginEnd(now, 0)
	}
	if s.ending.step < stepKill {
		s.ending.at, s.ending.grace, s.ending.step = now, 0, stepKill
	}
	if s.py != nil {
		_ = s.py.tree.Kill() // its exit says whether it worked
	}
}

// The steps of ending a run.
const (
	stepAsk = iota
	stepTerminate
	stepKill
	stepGiveUp
)

var stepNames = []string{"the exit request", "SIGTERM", "SIGKILL", "nothing"}

// advance goes on with ending the run.
func (s *session) advance(now time.Time) {
	e := s.ending
	if e == nil || s.py == nil {
		return
	}
	since := now.Sub(e.at)
	switch {
	case e.step < stepGiveUp && since >= e.grace+reapTime:
		e.step = stepGiveUp
	case e.step < stepKill && since >= e.grace:
		e.step = stepKill
		_ = s.py.tree.Kill()
	case e.step < stepTerminate && since >= e.grace/2:
		e.step = stepTerminate
		_ = s.py.tree.SignalGroup(unix.SIGTERM)
	}
}

func (e *ending) nextStep() time.Time {
	switch e.step {
	case stepAsk:
		return e.at.Add(e.grace / 2)
	case stepTerminate:
		return e.at.Add(e.grace)
	case stepKill:
		return e.at.Add(e.grace + reapTime)
	}
	return time.Time{}
}

// tend does what has become due.
func (s *session) tend(now time.Time) {
	s.advance(now)
	if s.ending != nil {
		return
	}
	if p := s.py; p != nil && !p.killed.IsZero() && now.Sub(p.killed) >= reapTime {
		s.beginEnd(now, 0)
		s.ending.step = stepGiveUp
		return
	}
	s.endMute(now)
	s.tendFork(now)
	if t := s.turns.TimedOut(now); t != nil {
		s.stopTurn(t, "timeout", s.steps)
	}
	s.escalate(now)
	switch l := &s.limits; {
	case l.Wall > 0 && now.Sub(s.begun) >= l.Wall:
		s.notice(spool.Notice{Code: NoticeTimeout, Text: fmt.Sprintf("the run is ended after %v", l.Wall)})
		s.stop(l.Grace)
	case l.Idle > 0 && s.isIdle() && now.Sub(s.idle) >= l.Idle:
		s.notice(spool.Notice{Code: NoticeIdleTimeout, Text: fmt.Sprintf("the run is ended after %v without a cell", l.Idle)})
		s.stop(l.Grace)
	}
}

func (s *session) isIdle() bool { return !s.turns.Busy() && s.turns.Asks() == 0 }

// deadline is when tend has something to do, or zero.
func (s *session) deadline() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.ending != nil {
		sooner(s.ending.nextStep())
		return next
	}
	if p := s.py; p != nil {
		if !p.closed.IsZero() && !p.mute {
			sooner(p.closed.Add(muteTime))
		}
		if !p.killed.IsZero() {
			sooner(p.killed.Add(reapTime))
		}
		sooner(s.forkStep())
	}
	sooner(s.turns.Deadline())
	if t := s.turns.Running(); t != nil && t.State() == turns.Stopping {
		sooner(t.Value.nextStep())
	}
	if s.limits.Wall > 0 {
		sooner(s.begun.Add(s.limits.Wall))
	}
	if s.limits.Idle > 0 && s.isIdle() {
		sooner(s.idle.Add(s.limits.Idle))
	}
	return next
}
