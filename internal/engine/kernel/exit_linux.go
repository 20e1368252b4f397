package kernel

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
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

// exitOf translates what wait said.
func exitOf(ws unix.WaitStatus) spool.Outcome {
	if ws.Signaled() {
		name := unix.SignalName(ws.Signal())
		if name == "" {
			name = "SIG" + strconv.Itoa(int(ws.Signal()))
		}
		return spool.Outcome{Kind: spool.Exited, Code: 128 + int(ws.Signal()), Signal: name}
	}
	return spool.Outcome{Kind: spool.Exited, Code: ws.ExitStatus()}
}

// exited deals with the end of the interpreter.
func (s *session) exited() {
	p := s.py
	s.reactor.Remove(p.tree.PidFD())
	s.reactor.Remove(p.ctl)
	status, err := p.tree.Reap()
	if m, err := p.tree.Count(); err != nil || !m.None() {
		_ = p.tree.Kill() // what it started ends with it
	}
	s.drainDead()
	stack := p.stack()
	for i := range s.streams {
		s.endStream(i)
	}
	s.py = nil
	s.unsent = nil
	s.mu.Lock()
	s.pid = 0
	s.mu.Unlock()
	if err == nil {
		exit := exitOf(status)
		s.last = &exit
	} else {
		s.last = nil
		s.lost = err
	}
	s.afterExit(p, stack)
	p.tree.Release()
	p.closeFiles()
	p.leaveMemory()
}

// dyingTime bounds how long output of what the interpreter started is waited
// for, once that was killed.
const dyingTime = 200 * time.Millisecond

// drainDead reads what is left in the pipes. Whoever else held them was
// killed, so their end comes at once, or somebody out of reach has them.
func (s *session) drainDead() {
	s.unblock()
	deadline := time.Now().Add(dyingTime)
	for {
		s.settle()
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

// afterExit settles what the interpreter left unsettled.
func (s *session) afterExit(p *interpreter, stack string) {
	d := spool.Done{Outcome: spool.TurnCrashed}
	d.Error, d.ErrorClass = s.cause(p)
	if s.last != nil {
		code := s.last.Code
		d.ExitCode, d.Signal = &code, s.last.Signal
	}
	if stack != "" {
		d.Stderr = stack
	}
	crashed := s.ending == nil && !s.restarting
	t := s.turns.Running()
	switch {
	case t == nil:
	case s.ending != nil:
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnKilled, "kill", "kill"
		d.Error, d.ErrorClass = "the run was ended", ""
	case s.restarting:
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnKilled, "restart", "kill"
		d.Error, d.ErrorClass = "the interpreter was restarted", ""
	case t.Value.strength >= 3: // ours
		crashed = false
		why, _ := t.Reason()
		d.Outcome, d.EndedBy, d.StoppedWith = spool.TurnKilled, why.By, t.Value.means()
		d.ErrorClass = ""
		d.Error = "the cell did not end when it was interrupted; the interpreter was killed, and its state is lost"
		switch why.By {
		case "timeout":
			d.Outcome = spool.TurnTimeout
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
	s.turns.CloseAsks(spool.Notice{Text: "the interpreter that asked is gone"})
	s.failForks("the interpreter ended")
	switch {
	case s.ending != nil:
		s.drop("the run was ended")
	case s.restarting:
		s.restarting = false
		s.drop("the interpreter was restarted")
		s.restart()
	case crashed && t == nil:
		s.drop("the interpreter died before it")
	case crashed:
		s.drop("the interpreter died in a cell before it")
	default:
		s.drop("the interpreter was killed in a cell before it")
	}
	s.idle = time.Now()
}

// cause says what ended an interpreter, as far as it can be known.
func (s *session) cause(p *interpreter) (why, class string) {
	switch {
	case s.last == nil:
		return fmt.Sprintf("the interpreter ended, and nobody knows how: %v", s.lost), ClassExit
	case s.last.Signal == "":
		return fmt.Sprintf("the interpreter exited with code %d, as os._exit does; its state is lost", s.last.Code), ClassExit
	case s.last.Signal == "SIGKILL" && p.mute:
		return "the interpreter closed the descriptor that its host reaches it by, and was killed; its state is lost", ClassExit
	case s.last.Signal == "SIGKILL" && p.killedForMemory():
		return "the interpreter was killed because memory ran out (SIGKILL by the system); its state is lost", ClassOOM
	case s.last.Signal == "SIGSEGV" || s.last.Signal == "SIGBUS":
		return "the interpreter crashed with a segmentation fault (" + s.last.Signal + "), most likely in C code; its state is lost", ClassSegfault
	}
	return "the interpreter was ended by " + s.last.Signal + "; its state is lost", ClassSignal
}

// over reports whether the run has ended.
func (s *session) over() bool {
	return s.ending != nil && s.starting == nil && (s.py == nil || s.ending.step == stepGiveUp)
}

// finish says how the run ended, and closes everything.
func (s *session) finish() {
	confirmed := s.py == nil && s.last != nil
	s.turns.Shut()
	if t := s.turns.Running(); t != nil { // only if the interpreter could not be ended
		s.finishTurn(t, spool.Done{Outcome: spool.TurnKilled, Error: "the interpreter does not end", EndedBy: "kill"})
	}
	s.failForks("the run ended")
	s.mu.Lock()
	s.ended = true
	list := s.requests
	s.requests = nil
	_ = unix.Close(s.kick)
	s.mu.Unlock()
	for _, r := range list {
		if r.started != nil && r.started.py != nil {
			r.started.py.discard()
		}
		if r.fork != nil {
			r.fork.reply <- forkReply{err: spool.ErrEnded}
		}
		if r.reply != nil {
			r.reply <- nil
		}
	}
	s.drop("the run was ended")
	text := "the interpreter was ended by " + stepNames[s.ending.step]
	if !confirmed {
		text = "it is not known whether the interpreter has ended"
	}
	s.notice(spool.Notice{Code: NoticeShutdown, Text: text, Level: "debug", Data: encode(map[string]any{"step": stepNames[s.ending.step], "confirmed": confirmed})})
	if confirmed {
		s.outcome = *s.last
	} else {
		why := "the interpreter could not be ended"
		if s.lost != nil {
			why = s.lost.Error()
		}
		s.outcome = spool.Outcome{Kind: spool.Unknown, Reason: why}
	}
	s.append(s.outcome.Event())
	if s.py != nil {
		s.py.closeFiles()
	}
	s.reactor.Close()
	close(s.done)
}
