package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/turns"
	"github.com/spool-run/spool/python"
)

// take does what was asked for.
func (s *session) take() {
	s.mu.Lock()
	list := s.requests
	s.requests = nil
	s.mu.Unlock()
	for _, r := range list {
		var err error
		switch {
		case r.answer != nil:
			s.answer(r.answer)
		case r.control != nil:
			err = s.control(r.control)
		case r.started != nil:
			s.replaced(r.started)
		case r.fork != nil:
			s.takeFork(r.fork)
		}
		if r.reply != nil {
			r.reply <- err
		}
	}
}

// next begins the next turn, or a fork, if nothing runs.
func (s *session) next() {
	if s.turns.Running() != nil || s.forkSent || s.ending != nil || s.refused {
		return
	}
	if s.py != nil && !s.py.killed.IsZero() {
		return // the next interpreter is for it
	}
	if s.py != nil && len(s.forks) > 0 {
		s.sendFork()
		return
	}
	if s.turns.Len() == 0 || s.starting != nil {
		return
	}
	if s.py == nil {
		s.restart()
		return
	}
	s.settle() // what came before belongs to the run
	s.output.Reset(&s.limits)
	if t := s.turns.Next(); t != nil {
		s.send(dict{"t": "cell", "id": int64(t.Seq), "code": t.Value.Code, "silent": t.Value.Silent, "count": !t.Value.NoHistory})
	}
}

// receive handles the messages of the interpreter.
func (s *session) receive(exiting bool) {
	err := s.py.fill()
	for s.py != nil {
		m, ferr := s.py.frame()
		if ferr != nil {
			s.notice(spool.Notice{Code: NoticeProtocol, Text: "the interpreter is ended: " + ferr.Error(), Level: "error"})
			s.py.in = nil
			s.end()
			return
		}
		if m == nil {
			break
		}
		s.message(m)
	}
	if err != nil && !exiting && s.py != nil && s.py.closed.IsZero() { // it is about to exit, or cannot be reached any more
		s.reactor.Remove(s.py.ctl)
		s.py.closed = time.Now()
	}
}

// muteTime is how long an interpreter may live on after it closed the control
// socket: one that ends does so first.
const muteTime = 200 * time.Millisecond

// endMute ends an interpreter that cannot be reached.
func (s *session) endMute(now time.Time) {
	if p := s.py; p != nil && !p.mute && !p.closed.IsZero() && now.Sub(p.closed) >= muteTime {
		p.mute = true
		s.end()
	}
}

func (s *session) message(m dict) {
	switch kind := text(m, "t"); kind {
	case "done":
		s.turnSaysDone(m)
	case "alive":
		if t := s.turns.Running(); t != nil && t.Value.said != nil && t.Value.strength < 4 {
			s.turnDone(t, t.Value.said)
		}
	case "result", "display":
		d, err := display(m, s.out)
		if err != nil {
			s.notice(spool.Notice{Code: NoticeOversize, Text: "part of a display is left out: " + err.Error(), Level: "warning"})
		}
		if kind == "result" {
			s.event(python.KindResult, d)
		} else {
			d.Count = 0
			s.event(python.KindDisplay, d)
			s.noteStatus(m)
		}
	case "clear":
		s.event(python.KindDisplay, python.Display{Clear: true, Wait: flag(m, "wait")})
	case "error":
		s.event(python.KindException, python.Exception{Name: text(m, "name"), Message: cut(text(m, "value")), Traceback: cut(text(m, "tb"))})
		if t := s.turns.Running(); t != nil {
			t.Value.failure = text(m, "name") + ": " + text(m, "value")
		}
	case "ask":
		s.ask(m)
	case "unask":
		s.unask(number(m, "k"))
	case "pause":
		if t := s.turns.Running(); t != nil {
			t.Pause()
		}
	case "resume":
		if t := s.turns.Running(); t != nil {
			t.Resume()
		}
	case "forked":
		s.forked(m)
	case "oversize":
		s.notice(spool.Notice{Code: NoticeOversize, Text: fmt.Sprintf("a %s of %d bytes was too large to be taken", text(m, "of"), number(m, "size")), Level: "warning"})
	default:
		s.notice(spool.Notice{Code: NoticeProtocol, Text: fmt.Sprintf("the interpreter said %q, which nobody understands", cut(kind)), Level: "warning"})
	}
}

// maxTraceback bounds what an exception says.
const maxTraceback = 1 << 20

// cut shortens a text from the middle.
func cut(s string) string {
	if len(s) <= maxTraceback {
		return s
	}
	half := maxTraceback / 2
	return strings.ToValidUTF8(s[:half], "") + "\n…\n" + strings.ToValidUTF8(s[len(s)-half:], "")
}

// noteStatus acts on what a helper did.
func (s *session) noteStatus(m dict) {
	bundle, _ := m["b"].(dict)
	status, _ := bundle[python.MIMEStatus].(dict)
	if text(status, "op") == "pip" {
		s.eng.dropZygotes(s.py.executable)
	}
}

// turnSaysDone ends the turn, unless its end crossed means that end the
// interpreter. Then that either shows that it has survived, or exits: the next
// cell must not be sent to one that is about to die.
func (s *session) turnSaysDone(m dict) {
	switch t := s.turns.Running(); {
	case t == nil:
	case t.Value.strength < 3 || s.ending != nil:
		s.turnDone(t, m)
	default:
		t.Value.said = m
		s.send(dict{"t": "alive"})
	}
}

// turnDone ends the turn as the interpreter says.
func (s *session) turnDone(t *turn, m dict) {
	s.settle()
	why, stopping := t.Reason()
	d := spool.Done{ExecutionCount: int(number(m, "n"))}
	switch text(m, "status") {
	case "ok":
		d.Outcome = spool.TurnOK
	case "interrupted":
		d.Outcome = spool.TurnInterrupted
		d.Error, d.ErrorClass = t.Value.failure, "KeyboardInterrupt"
		if !stopping { // it raised that by itself
			d.Outcome = spool.TurnError
		}
		if why.By == "timeout" {
			d.Outcome = spool.TurnTimeout
		}
	default:
		d.Outcome = spool.TurnError
		d.Error = t.Value.failure
		d.ErrorClass, _, _ = strings.Cut(t.Value.failure, ":")
		if why.By == "timeout" { // what the interrupt led to
			d.Outcome = spool.TurnTimeout
		}
	}
	if stopping && d.Outcome != spool.TurnOK { // else it was faster
		d.EndedBy, d.StoppedWith = why.By, t.Value.means()
		if d.Outcome == spool.TurnTimeout {
			d.Error = fmt.Sprintf("the cell did not end within %v; it was interrupted, and the state is kept", t.Limit())
		}
	}
	s.finishTurn(t, d)
}

// finishTurn logs that the turn that runs is over. What it asked is over, too.
func (s *session) finishTurn(t *turn, d spool.Done) {
	s.flushTail()
	d.Error = cut(d.Error)
	s.turns.Finish(t, d)
	s.idle = time.Now()
	s.output.Reset(&s.limits)
	s.setBlocked(false)
}

// drop ends the turns that wait, which never begin.
func (s *session) drop(why string) {
	s.turns.Drop(spool.Done{Outcome: spool.TurnKilled, Error: "the cell was not run: " + why, ErrorClass: turns.ClassNotRun})
}

// ask logs a question, and stops the clock of its turn: while the host works
// the cell does not.
func (s *session) ask(m dict) {
	a := spool.Ask{Kind: spool.AskInput, Prompt: text(m, "prompt"), Secret: flag(m, "secret")}
	if text(m, "kind") == "tool" {
		a = spool.Ask{Kind: spool.AskTool, Name: text(m, "name"), Data: json.RawMessage(text(m, "data"))}
		if !json.Valid(a.Data) {
			a.Data = nil
		}
	}
	var of spool.Seq
	if t := s.turns.Running(); t != nil {
		of = t.Seq
	}
	// A log that takes no more ends the run, and the question with it.
	_, _, _ = s.turns.Ask(spool.Event{Turn: of}, a, ask{number(m, "k"), a.Kind})
}

// unask says that the interpreter does not wait any more.
func (s *session) unask(n int64) {
	if seq, ok := s.turns.FindAsk(func(a ask) bool { return a.number == n }); ok {
		s.turns.CloseAsk(seq, spool.Notice{Text: "the cell no longer waits for an answer"})
	}
}

// answer passes an answer on.
func (s *session) answer(a *spool.Answer) {
	q, ok := s.turns.Answer(*a)
	if !ok {
		return
	}
	m := dict{"t": "answer", "k": q.number}
	switch {
	case a.Error != nil:
		m["error"] = a.Error.Message
	case q.kind == spool.AskTool:
		m["json"] = string(a.Data)
	default:
		var line string
		if err := json.Unmarshal(a.Data, &line); err != nil {
			line = string(a.Data)
		}
		m["value"] = strings.TrimSuffix(line, "\n")
	}
	s.send(m)
}

// restart starts an interpreter in the place of one that is gone.
func (s *session) restart() {
	ctx, cancel := context.WithCancel(context.Background())
	s.starting = cancel
	s.eng.mu.Lock()
	if s.eng.closed {
		s.eng.mu.Unlock()
		return // the kill is on its way
	}
	s.eng.work.Add(1)
	s.eng.mu.Unlock()
	plan := *s.plan
	go func() {
		defer s.eng.work.Done()
		p, err := s.eng.bringUp(ctx, &plan)
		if !s.post(request{started: &started{p, err}}) && p != nil {
			p.discard()
		}
	}()
}

// replaced takes over the interpreter that was started.
func (s *session) replaced(st *started) {
	s.starting()
	s.starting = nil
	err := st.err
	if err == nil && s.ending != nil {
		st.py.discard()
		return
	}
	if err == nil {
		if err = s.adopt(st.py); err != nil {
			st.py.discard()
		}
	}
	if err != nil {
		if t := s.turns.First(); t != nil {
			s.turns.Finish(t, spool.Done{Outcome: spool.TurnCrashed, Error: "no fresh interpreter could be started: " + err.Error(), ErrorClass: ClassStart})
		}
		s.drop("no fresh interpreter could be started")
		return
	}
	s.notice(spool.Notice{
		Code: NoticeRestarted, Level: "warning",
		Text: "a fresh interpreter was started (Python " + st.py.version + ", pid " + strconv.Itoa(st.py.tree.Pid()) + "); what the one before knew is gone, and no cell was repeated",
	})
}
