package kernel

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/limits"
)

// signalName completes a name of a signal.
func signalName(name string) string {
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= 64 {
		return unix.SignalName(unix.Signal(n))
	}
	name = strings.ToUpper(name)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	return name
}

// outcomeOf returns the outcome for a wait status.
func outcomeOf(ws unix.WaitStatus) spool.Outcome {
	if ws.Signaled() {
		name := unix.SignalName(ws.Signal())
		if name == "" {
			name = "SIG" + strconv.Itoa(int(ws.Signal()))
		}
		return spool.Outcome{Kind: spool.Exited, Code: 128 + int(ws.Signal()), Signal: name}
	}
	return spool.Outcome{Kind: spool.Exited, Code: ws.ExitStatus()}
}

// handleExit reaps the interpreter and ends its turn.
func (s *session) handleExit() {
	p := s.interp
	s.reactor.Remove(p.tree.PidFD())
	s.reactor.Remove(p.ctl)
	status, err := p.tree.Reap()
	s.account.Add(p.tree.Used())
	if m, err := p.tree.Count(); err != nil || !m.None() {
		_ = p.tree.Kill() // its children end with it
	}
	s.drainAfterExit()
	s.flushPartial()
	stack := p.takeStack()
	for i := range s.streams {
		s.endStream(i)
	}
	s.interp = nil
	s.outgoing = nil
	s.mu.Lock()
	s.pid = 0
	s.mu.Unlock()
	if err == nil {
		exit := outcomeOf(status)
		s.lastOutcome = &exit
	} else {
		s.lastOutcome = nil
		s.waitErr = err
	}
	s.endNetwork(p)
	if p.lease != nil { // before another interpreter gets the same overlay
		p.lease.Release()
	}
	s.afterExit(p, stack)
	p.release()
	p.closeFiles()
	p.closeMemoryGroup()
}

// drainTimeout limits the wait for the output of killed children of the
// interpreter.
const drainTimeout = 200 * time.Millisecond

// drainAfterExit reads the rest of the pipes. The other processes of the tree were
// killed, so the pipes end soon, unless a process outside the tree has them open.
func (s *session) drainAfterExit() {
	s.unblock()
	deadline := time.Now().Add(drainTimeout)
	for {
		s.drainStreams()
		var fds []unix.PollFd
		for _, st := range s.streams {
			if st.fd >= 0 && !st.blocked {
				fds = append(fds, unix.PollFd{Fd: int32(st.fd), Events: unix.POLLIN})
			}
		}
		left := time.Until(deadline)
		if len(fds) == 0 || left <= 0 {
			return
		}
		if _, err := unix.Poll(fds, int(left/time.Millisecond)+1); err != nil && err != unix.EINTR {
			return
		}
	}
}

// afterExit ends the turns, asks and forks of an interpreter that has exited.
func (s *session) afterExit(p *interpreter, stack string) {
	last := s.turns.Latest() // later turns are for the next interpreter
	d := spool.Done{Outcome: spool.TurnCrashed}
	d.Error, d.ErrorClass = s.cause(p)
	if s.lastOutcome != nil {
		code := s.lastOutcome.Code
		d.ExitCode, d.Signal = &code, s.lastOutcome.Signal
	}
	if stack != "" {
		d.Stderr = stack
	}
	for _, n := range limits.Met(&s.limits, p.tree.Refused(), p.tree.Throttled()) {
		s.notice(n)
	}
	crashed := s.shutdown == nil && !s.restarting
	t := s.turns.Running()
	switch {
	case t == nil:
	case s.shutdown != nil:
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnKilled, "kill", "kill"
		d.Error, d.ErrorClass = "the run was ended", ""
	case s.restarting:
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnKilled, "restart", "kill"
		d.Error, d.ErrorClass = "the interpreter was restarted", ""
	case t.Value.stopLevel >= 3: // the engine killed it
		crashed = false
		why, _ := t.Reason()
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnKilled, why.By, t.Value.stopMethod()
		d.ErrorClass = ""
		d.Error = "the cell did not end when it was interrupted; the interpreter was killed, and its state is lost"
		switch why.By {
		case "timeout":
			d.Outcome, d.LimitMs = spool.TurnTimeout, t.Limit().Milliseconds()
		case "kill":
			d.Error = "the cell was killed with its interpreter, whose state is lost"
		}
	}
	if crashed {
		n := spool.Notice{Code: NoticeCrashed, Level: "error", Text: d.Error}
		if stack != "" {
			n.Text += "\n" + stack
		}
		s.notice(n)
	}
	if t != nil {
		s.finishTurn(t, d)
	}
	s.turns.CloseAsks(spool.Notice{Text: "the interpreter that asked has ended"})
	s.failForks("the interpreter ended")
	s.failInspections()
	switch {
	case s.shutdown != nil:
		s.dropQueued(last, "the run was ended")
	case s.restarting:
		s.restarting = false
		s.dropQueued(last, "the interpreter was restarted")
		s.startReplacement()
	case crashed && t == nil:
		s.dropQueued(last, "the interpreter died before it")
	case crashed:
		s.dropQueued(last, "the interpreter died in a cell before it")
	default:
		s.dropQueued(last, "the interpreter was killed in a cell before it")
	}
	s.idleSince = time.Now()
}

// outOfMemory is why an interpreter ended that the kernel killed.
const outOfMemory = "the kernel killed the interpreter (SIGKILL): out of memory; its state is lost"

// cause returns why an interpreter ended and the class of the error.
func (s *session) cause(p *interpreter) (why, class string) {
	switch {
	case s.lastOutcome == nil:
		return fmt.Sprintf("the interpreter ended, but its exit status is unknown: %v", s.waitErr), ClassExit
	case s.lastOutcome.Signal == "":
		return fmt.Sprintf("the interpreter exited with code %d, as os._exit does; its state is lost", s.lastOutcome.Code), ClassExit
	// A process that the kernel kills for its memory closes its socket a while
	// before it has exited, so this comes before unreachable.
	case s.lastOutcome.Signal == "SIGKILL" && p.tree.MemoryKills() > 0:
		return "the kernel killed the interpreter (SIGKILL): " + limits.OutOfMemory(s.limits.MemoryBytes) + "; its state is lost", ClassOOM
	case s.lastOutcome.Signal == "SIGKILL" && p.memory != nil && p.memory.Kills() > 0:
		return outOfMemory, ClassOOM
	case s.lastOutcome.Signal == "SIGKILL" && p.unreachable:
		return "the interpreter closed its control socket and was killed; its state is lost", ClassExit
	case s.lastOutcome.Signal == "SIGKILL" && p.killedForMemory():
		return outOfMemory, ClassOOM
	case s.lastOutcome.Signal == "SIGSEGV" || s.lastOutcome.Signal == "SIGBUS":
		return "the interpreter crashed with a segmentation fault (" + s.lastOutcome.Signal + "), most likely in C code; its state is lost", ClassSegfault
	}
	return "the interpreter was ended by " + s.lastOutcome.Signal + "; its state is lost", ClassSignal
}

// finished reports whether the run has ended.
func (s *session) finished() bool {
	return s.shutdown != nil && s.starting == nil && (s.interp == nil || s.shutdown.step == stepGiveUp)
}

// finish appends the outcome of the run and closes its descriptors.
func (s *session) finish() {
	s.reactor.Close()
	confirmed := s.interp == nil && s.lastOutcome != nil
	s.turns.Shut()
	if t := s.turns.Running(); t != nil { // only if the interpreter could not be killed
		s.finishTurn(t, spool.Done{Outcome: spool.TurnKilled, Error: "the interpreter did not end after SIGKILL", EndedBy: "kill"})
	}
	s.failForks("the run ended")
	s.failInspections()
	s.mu.Lock()
	s.ended = true
	list := s.requests
	s.requests = nil
	_ = unix.Close(s.wakeFD)
	s.mu.Unlock()
	for _, r := range list {
		if r.replacement != nil && r.replacement.interp != nil {
			r.replacement.interp.discard()
		}
		if r.fork != nil {
			r.fork.reply <- forkReply{err: spool.ErrEnded}
		}
		if r.reply != nil {
			r.reply <- nil
		}
	}
	s.dropQueued(s.turns.Latest(), "the run was ended")
	text := "the interpreter was ended by " + stepNames[s.shutdown.step]
	if !confirmed {
		text = "the interpreter may still be running"
	}
	s.notice(spool.Notice{Code: NoticeShutdown, Text: text, Level: "debug", Data: encode(map[string]any{"step": stepNames[s.shutdown.step], "confirmed": confirmed})})
	if confirmed {
		s.outcome = *s.lastOutcome
		s.outcome.Reason = s.limit
	} else {
		why := "the interpreter could not be killed"
		if s.waitErr != nil {
			why = s.waitErr.Error()
		}
		s.outcome = spool.Outcome{Kind: spool.Unknown, Reason: why}
	}
	s.append(s.outcome.Event())
	if s.interp != nil {
		s.interp.closeFiles()
	}
	s.trace.close()
	close(s.done)
}
