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

// The names of the stop levels, from weak to strong.
var stopMethods = []string{"", "interrupt", "interrupt", "terminate", "kill"}

func (c *cell) stopMethod() string { return stopMethods[c.stopLevel] }

// handleControl carries out a control.
func (s *session) handleControl(c *spool.Control) error {
	effect, t := s.turns.Control(*c)
	switch {
	case effect == turns.None:
		return nil
	case effect == turns.OnTurn && c.Op == spool.ControlInterrupt:
		s.stopTurn(t, "interrupt", s.schedule.withGrace(c.Grace))
		return nil
	case effect == turns.OnTurn && c.Op == spool.ControlStop:
		s.stopTurn(t, "stop", s.schedule.withGrace(c.Grace))
		return nil
	case effect == turns.OnTurn && c.Op == spool.ControlKill:
		s.killTurn(t)
		return nil
	}
	switch c.Op {
	case spool.ControlSignal:
		if s.interp == nil {
			return spool.ErrEnded
		}
		sig := unix.SignalNum(signalName(c.Signal))
		if sig == 0 {
			return fmt.Errorf("signal %q: %w", c.Signal, spool.ErrInvalid)
		}
		if err := s.interp.tree.SignalGroup(sig); errors.Is(err, os.ErrProcessDone) {
			return spool.ErrEnded
		} else if err != nil {
			return err
		}
	case spool.ControlRestart:
		s.restart(c.Op)
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

// stopTurn interrupts the turn and starts the schedule of stronger signals. A second
// request does not restart the schedule, but may shorten it.
func (s *session) stopTurn(t *turn, by string, steps schedule) {
	c, now := t.Value, time.Now()
	if !t.Stop(turns.Reason{By: by, At: now}) {
		if now.Add(steps.kill).Before(c.stopRequested.Add(c.schedule.kill)) {
			c.stopRequested, c.schedule = now, steps
		}
		s.signal(unix.SIGINT)
		return
	}
	c.stopRequested, c.schedule, c.stopLevel = now, steps, 1
	s.unblock()
	s.interrupt(t)
}

// killTurn kills the interpreter that runs the turn. The next turn gets a new one.
func (s *session) killTurn(t *turn) {
	if s.interp == nil || s.shutdown != nil {
		return
	}
	if why := (turns.Reason{By: "kill"}); !t.Stop(why) {
		t.Override(why)
	}
	t.Value.stopLevel = 4
	s.unblock()
	s.killInterpreter()
}

// interrupt interrupts the turn. The signal may arrive before the cell has begun:
// the message, which is sent first, names the turn.
func (s *session) interrupt(t *turn) {
	s.send(dict{"t": "stop", "id": int64(t.Seq)})
	s.write()
	if s.engine.loseInterrupts {
		return
	}
	s.signal(unix.SIGINT)
}

// signal signals the main thread of the interpreter, which runs the handlers: a
// signal to another thread would not wake it from a system call.
func (s *session) signal(sig unix.Signal) {
	if s.interp != nil {
		// The pid is valid: this goroutine also reaps the interpreter.
		_ = unix.Tgkill(s.interp.tree.Pid(), s.interp.tree.Pid(), sig)
	}
}

// killInterpreter kills the interpreter. handleExit does the rest; if the
// interpreter does not exit, handleTimers ends the run.
func (s *session) killInterpreter() {
	if s.interp.killed.IsZero() {
		s.interp.killed = time.Now()
	}
	_ = s.interp.tree.Kill()
}

// dumpSignal makes the interpreter dump the stacks of its threads.
const dumpSignal = unix.Signal(60)

// escalate sends stronger signals to a turn that has not stopped.
func (s *session) escalate(now time.Time) {
	t := s.turns.Running()
	if t == nil || t.State() != turns.Stopping || s.interp == nil {
		return
	}
	c := t.Value
	since := now.Sub(c.stopRequested)
	if c.stopLevel < 4 && since >= c.schedule.terminate {
		// The turn may have ended since the last read.
		s.drainStreams()
		s.readMessages(false)
		if s.turns.Running() != t || s.interp == nil {
			return
		}
	}
	switch {
	case c.stopLevel < 4 && since >= c.schedule.kill:
		c.stopLevel = 4
		s.noteEscalation(c, "killed")
		s.killInterpreter()
	case c.stopLevel < 3 && since >= c.schedule.terminate:
		c.stopLevel = 3
		s.noteEscalation(c, "sent SIGTERM")
		s.signal(unix.SIGTERM)
	case c.stopLevel < 2 && since >= c.schedule.secondInterrupt:
		c.stopLevel = 2
		s.signal(dumpSignal)
		s.noteEscalation(c, "interrupted again")
		// Its children, too: it may be waiting for one of them.
		_ = s.interp.tree.SignalGroup(unix.SIGINT)
		s.signal(unix.SIGINT)
	}
}

// noteEscalation appends a notice that a turn did not stop, with its stack.
func (s *session) noteEscalation(c *cell, what string) {
	n := spool.Notice{Code: NoticeEscalated, Level: "warning", Text: fmt.Sprintf("the cell did not stop; %s after %v", what, time.Since(c.stopRequested).Round(time.Millisecond))}
	if c.stopLevel > 2 {
		if stack := s.interp.takeStack(); stack != "" {
			n.Text += "; it was here:\n" + stack
		}
	}
	s.notice(n)
}

// nextStep returns when escalate must be called next, or zero.
func (c *cell) nextStep() time.Time {
	switch c.stopLevel {
	case 1:
		return c.stopRequested.Add(c.schedule.secondInterrupt)
	case 2:
		return c.stopRequested.Add(c.schedule.terminate)
	case 3:
		return c.stopRequested.Add(c.schedule.kill)
	}
	return time.Time{}
}

// reapTimeout limits how long a killed interpreter may take to exit. A large one
// takes seconds on a busy machine.
const reapTimeout = 10 * time.Second

// restart replaces the interpreter by a new one.
func (s *session) restart(op spool.ControlOp) {
	s.restarting = true
	if s.interp != nil {
		s.killInterpreter()
		return
	}
	if s.starting == nil {
		s.restarting = false
		s.startReplacement()
	}
}

// stop ends the run: with an exit request, then SIGTERM, then SIGKILL.
func (s *session) stop(grace time.Duration) {
	now := time.Now()
	if s.shutdown != nil {
		if now.Add(grace).Before(s.shutdown.requested.Add(s.shutdown.grace)) {
			s.shutdown.requested, s.shutdown.grace = now, grace
		}
		return
	}
	s.beginShutdown(now, grace)
	if s.interp == nil {
		return
	}
	if t := s.turns.Running(); t != nil && t.Stop(turns.Reason{By: "stop", At: now}) {
		t.Value.stopRequested, t.Value.stopLevel = now, 1 // advanceShutdown escalates
		s.interrupt(t)
	}
	s.send(dict{"t": "exit"})
}

// beginShutdown begins to end the run: no turn or interpreter starts after it.
func (s *session) beginShutdown(now time.Time, grace time.Duration) {
	s.shutdown = &shutdown{requested: now, grace: grace}
	s.unblock()
	if s.starting != nil {
		s.starting()
	}
}

// kill kills the interpreter and ends the run.
func (s *session) kill() {
	now := time.Now()
	if s.shutdown == nil {
		s.beginShutdown(now, 0)
	}
	if s.shutdown.step < stepKill {
		s.shutdown.requested, s.shutdown.grace, s.shutdown.step = now, 0, stepKill
	}
	if s.interp != nil {
		_ = s.interp.tree.Kill() // its exit shows whether it worked
	}
}

// The steps of ending a run.
const (
	stepExitRequest = iota
	stepTerminate
	stepKill
	stepGiveUp
)

var stepNames = []string{"the exit request", "SIGTERM", "SIGKILL", "nothing"}

// advanceShutdown takes the next step of ending the run, if its time has come.
func (s *session) advanceShutdown(now time.Time) {
	e := s.shutdown
	if e == nil || s.interp == nil {
		return
	}
	since := now.Sub(e.requested)
	switch {
	case e.step < stepGiveUp && since >= e.grace+s.engine.reapTimeout:
		e.step = stepGiveUp
	case e.step < stepKill && since >= e.grace:
		e.step = stepKill
		_ = s.interp.tree.Kill()
	case e.step < stepTerminate && since >= e.grace/2:
		e.step = stepTerminate
		_ = s.interp.tree.SignalGroup(unix.SIGTERM)
	}
}

func (e *shutdown) nextStep(reapTimeout time.Duration) time.Time {
	switch e.step {
	case stepExitRequest:
		return e.requested.Add(e.grace / 2)
	case stepTerminate:
		return e.requested.Add(e.grace)
	case stepKill:
		return e.requested.Add(e.grace + reapTimeout)
	}
	return time.Time{}
}

// handleTimers acts on expired limits and steps.
func (s *session) handleTimers(now time.Time) {
	s.advanceShutdown(now)
	if s.shutdown != nil {
		return
	}
	if p := s.interp; p != nil && !p.killed.IsZero() && now.Sub(p.killed) >= s.engine.reapTimeout {
		s.beginShutdown(now, 0)
		s.shutdown.step = stepGiveUp
		return
	}
	for i := range s.streams {
		// The rest may have come in time, and wait to be read.
		if st := &s.streams[i]; st.partials > 0 && now.Sub(st.partialAt) >= PartialWait && s.read(i) == 0 {
			s.flushPartialOf(st)
		}
	}
	s.killUnreachable(now)
	s.checkForkTimeout(now)
	s.checkInspection(now)
	if t := s.turns.TimedOut(now); t != nil {
		s.stopTurn(t, "timeout", s.schedule)
	}
	s.escalate(now)
	switch l := &s.limits; {
	case l.Wall > 0 && now.Sub(s.started) >= l.Wall:
		s.timeOut(NoticeTimeout, fmt.Sprintf("timed out after %v", l.Wall))
	case l.Idle > 0 && s.isIdle() && now.Sub(s.idleSince) >= l.Idle:
		s.timeOut(NoticeIdleTimeout, fmt.Sprintf("timed out after %v without a cell", l.Idle))
	}
}

// timeOut stops the run because of a time limit.
func (s *session) timeOut(code, reason string) {
	s.limit = reason
	s.notice(spool.Notice{Code: code, Text: reason})
	s.stop(s.limits.Grace)
}

func (s *session) isIdle() bool { return !s.turns.Busy() && s.turns.Asks() == 0 }

// nextTimer is when tend has something to do, or zero.
func (s *session) nextTimer() time.Time {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if s.shutdown != nil {
		sooner(s.shutdown.nextStep(s.engine.reapTimeout))
		return next
	}
	if p := s.interp; p != nil {
		if !p.ctlClosed.IsZero() && !p.unreachable {
			sooner(p.ctlClosed.Add(unreachableGrace))
		}
		if !p.killed.IsZero() {
			sooner(p.killed.Add(s.engine.reapTimeout))
		}
		sooner(s.forkDeadline())
		sooner(s.inspectionDeadline())
	}
	for i := range s.streams {
		if st := &s.streams[i]; st.partials > 0 {
			sooner(st.partialAt.Add(PartialWait))
		}
	}
	sooner(s.turns.Deadline())
	if t := s.turns.Running(); t != nil && t.State() == turns.Stopping {
		sooner(t.Value.nextStep())
	}
	if s.limits.Wall > 0 {
		sooner(s.started.Add(s.limits.Wall))
	}
	if s.limits.Idle > 0 && s.isIdle() {
		sooner(s.idleSince.Add(s.limits.Idle))
	}
	return next
}
