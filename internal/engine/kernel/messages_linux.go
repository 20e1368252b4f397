package kernel

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/turns"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/python"
)

// handleRequests handles the requests of other goroutines.
func (s *session) handleRequests() {
	s.mu.Lock()
	list := s.requests
	s.requests = nil
	s.mu.Unlock()
	for _, r := range list {
		var err error
		switch {
		case r.answer != nil:
			s.sendAnswer(r.answer)
		case r.control != nil:
			err = s.handleControl(r.control)
		case r.replacement != nil:
			s.handleReplacement(r.replacement)
		case r.fork != nil:
			s.queueFork(r.fork)
		case r.inspection != nil:
			s.queueInspection(r.inspection)
		}
		if r.reply != nil {
			r.reply <- err
		}
	}
}

// startNext starts the next turn, or a fork, if no turn runs.
func (s *session) startNext() {
	if s.turns.Running() != nil || s.forkSent || s.shutdown != nil || s.logClosed || s.inspects() {
		return
	}
	if s.interp != nil && !s.interp.killed.IsZero() {
		return // the next turn is for the next interpreter
	}
	if s.interp != nil && len(s.forks) > 0 {
		s.sendFork()
		return
	}
	if s.interp != nil && len(s.inspections) > 0 && s.inspections[0].deadline.IsZero() {
		s.sendInspection()
		return
	}
	if s.turns.Len() == 0 || s.starting != nil {
		return
	}
	if s.interp == nil {
		s.startReplacement()
		return
	}
	s.drainStreams() // output so far belongs to no turn
	s.flushPartial()
	s.output.Reset(&s.limits)
	if t := s.turns.Next(); t != nil {
		if t.Waited() {
			s.notice(spool.Notice{Code: python.NoticeTurnBegan, Level: "debug", Text: "the cell began"})
		}
		s.send(t.Value.message(t.Seq))
	}
}

// message is the message that has the interpreter run the cell.
func (c *cell) message(seq spool.Seq) dict {
	m := dict{"t": "cell", "id": int64(seq), "code": c.Code, "silent": c.Silent, "count": !c.NoHistory}
	if c.File != "" {
		m["file"] = c.File
	}
	if c.Module != "" {
		m["module"] = c.Module
	}
	if len(c.Args) > 0 {
		m["args"] = c.Args
	}
	if c.Keep {
		m["keep"] = true
	}
	return m
}

// readMessages handles the messages of the interpreter.
func (s *session) readMessages(exiting bool) {
	err := s.interp.readControl()
	s.out.Hold() // a result and the end of its cell come together
	defer s.out.Release()
	for s.interp != nil {
		m, ferr := s.interp.nextMessage()
		if ferr != nil {
			s.notice(spool.Notice{Code: NoticeProtocol, Text: "killed the interpreter: " + ferr.Error(), Level: "error"})
			s.interp.incoming = nil
			s.killInterpreter()
			return
		}
		if m == nil {
			break
		}
		s.trace.record(fromInterpreter, m)
		s.flushPartial()
		s.handleMessage(m)
	}
	if err != nil && !exiting && s.interp != nil && s.interp.ctlClosed.IsZero() { // it is about to exit, or unreachable
		s.reactor.Remove(s.interp.ctl)
		s.interp.ctlClosed = time.Now()
	}
}

// unreachableGrace is how long an interpreter may live after it closed the
// control socket: one that exits closes the socket first.
const unreachableGrace = 200 * time.Millisecond

// killUnreachable kills an interpreter that has closed the control socket, unless
// it is exiting, which takes longer on a busy machine.
func (s *session) killUnreachable(now time.Time) {
	p := s.interp
	if p == nil || p.unreachable || p.ctlClosed.IsZero() || now.Sub(p.ctlClosed) < unreachableGrace {
		return
	}
	if launch.Exiting(p.tree.Pid()) {
		p.ctlClosed = now
		return
	}
	p.unreachable = true
	s.killInterpreter()
}

func (s *session) handleMessage(m dict) {
	switch kind := text(m, "t"); kind {
	case "done":
		s.handleDone(m)
	case "alive":
		if t := s.turns.Running(); t != nil && t.Value.pendingDone != nil && t.Value.stopLevel < 4 {
			s.completeTurn(t, t.Value.pendingDone)
		}
	case "result", "display":
		d, err := display(m, s.out)
		if err != nil {
			s.notice(spool.Notice{Code: NoticeOversize, Text: "part of a display was dropped: " + err.Error(), Level: "warning"})
		}
		if kind == "result" {
			s.event(python.KindResult, d)
		} else {
			d.Count = 0
			s.event(python.KindDisplay, d)
			s.handleStatus(m)
		}
	case "clear":
		s.event(python.KindDisplay, python.Display{Clear: true, Wait: flag(m, "wait")})
	case "error":
		s.event(python.KindException, python.Exception{Name: text(m, "name"), Message: truncateMiddle(text(m, "value")), Traceback: truncateMiddle(text(m, "tb")), Printed: m["printed"] == true})
		if t := s.turns.Running(); t != nil {
			t.Value.failure = text(m, "name") + ": " + text(m, "value")
		}
	case "ask":
		s.handleAsk(m)
	case "unask":
		s.cancelAsk(number(m, "k"))
	case "pause":
		if t := s.turns.Running(); t != nil {
			t.Pause()
		}
	case "resume":
		if t := s.turns.Running(); t != nil {
			t.Resume()
		}
	case "forked":
		s.handleForked(m)
	case "inspected":
		s.handleInspected(m)
	case "oversize":
		s.notice(spool.Notice{Code: NoticeOversize, Text: fmt.Sprintf("dropped a %s of %d bytes: too large", text(m, "of"), number(m, "size")), Level: "warning"})
	default:
		s.notice(spool.Notice{Code: NoticeProtocol, Text: fmt.Sprintf("unknown message %q from the interpreter", truncateMiddle(kind)), Level: "warning"})
	}
}

// maxTraceback limits the message and the traceback of an exception, in bytes.
const maxTraceback = 1 << 20

// truncateMiddle shortens a text from the middle.
func truncateMiddle(s string) string {
	if len(s) <= maxTraceback {
		return s
	}
	half := maxTraceback / 2
	return strings.ToValidUTF8(s[:half], "") + "\n…\n" + strings.ToValidUTF8(s[len(s)-half:], "")
}

// handleStatus drops the zygotes of an interpreter whose packages have changed.
func (s *session) handleStatus(m dict) {
	bundle, _ := m["b"].(dict)
	status, _ := bundle[python.MIMEStatus].(dict)
	if text(status, "op") == "pip" {
		s.engine.dropZygotes(s.interp.executable)
	}
}

// handleDone completes the turn. But if SIGTERM or SIGKILL was sent meanwhile, it
// first asks the interpreter whether it is alive: the next cell must not go to an
// interpreter that is about to exit.
func (s *session) handleDone(m dict) {
	switch t := s.turns.Running(); {
	case t == nil:
	case t.Value.stopLevel < 3 || s.shutdown != nil:
		s.completeTurn(t, m)
	default:
		t.Value.pendingDone = m
		s.send(dict{"t": "alive"})
	}
}

// completeTurn finishes the turn with the status that the interpreter sent.
func (s *session) completeTurn(t *turn, m dict) {
	s.drainStreams()
	why, stopping := t.Reason()
	d := spool.Done{ExecutionCount: int(number(m, "n"))}
	switch text(m, "status") {
	case "ok":
		d.Outcome = spool.TurnOK
	case "interrupted":
		d.Outcome = spool.TurnInterrupted
		d.Error, d.ErrorClass = t.Value.failure, "KeyboardInterrupt"
		if !stopping { // the code raised it by itself
			d.Outcome = spool.TurnError
		}
		if why.By == "timeout" {
			d.Outcome = spool.TurnTimeout
		}
	default:
		d.Outcome = spool.TurnError
		d.Error = t.Value.failure
		d.ErrorClass, _, _ = strings.Cut(t.Value.failure, ":")
		if why.By == "timeout" { // a result of the interrupt
			d.Outcome = spool.TurnTimeout
		}
	}
	if stopping && d.Outcome != spool.TurnOK { // otherwise the turn ended first
		d.EndedBy, d.StoppedWith = why.By, t.Value.stopMethod()
		if d.Outcome == spool.TurnTimeout {
			d.LimitMs = t.Limit().Milliseconds()
			d.Error = fmt.Sprintf("the cell did not end within %v; it was interrupted, and the state is kept", t.Limit())
		}
	}
	s.finishTurn(t, d)
}

// finishTurn ends the running turn and its asks.
func (s *session) finishTurn(t *turn, d spool.Done) {
	s.flushPartial()
	s.flushOutput()
	d.Error = truncateMiddle(d.Error)
	s.turns.Finish(t, d)
	s.idleSince = time.Now()
	s.output.Reset(&s.limits)
	s.setBlocked(false)
	if s.launch.cfg.Once {
		s.stop(s.limits.Grace)
	}
}

// dropQueued ends the queued turns without running them, up to and including
// last.
func (s *session) dropQueued(last spool.Seq, why string) {
	s.turns.DropThrough(last, spool.Done{Outcome: spool.TurnKilled, Error: "the cell was not run: " + why, ErrorClass: turns.ClassNotRun})
}

// handleAsk appends an ask. The timeout of the turn pauses until the answer.
func (s *session) handleAsk(m dict) {
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
	// If the log is closed the run ends, and the ask with it.
	_, _, _ = s.turns.Ask(spool.Event{Turn: of}, a, ask{number(m, "k"), a.Kind, a.Secret})
}

// cancelAsk closes an ask that the interpreter no longer waits for.
func (s *session) cancelAsk(n int64) {
	if seq, ok := s.turns.FindAsk(func(a ask) bool { return a.number == n }); ok {
		s.turns.CloseAsk(seq, spool.Notice{Text: "the cell no longer waits for an answer"})
	}
}

// sendAnswer sends an answer to the interpreter.
func (s *session) sendAnswer(a *spool.Answer) {
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
		m["value"] = inputLine(a.Data)
	}
	s.trace.hideNext = q.secret
	s.send(m)
}

// inputLine is the line that answers input(): a string, or bytes if the answer
// is an object with a member "base64", for a line that is not UTF-8.
func inputLine(data json.RawMessage) any {
	var line string
	if json.Unmarshal(data, &line) == nil {
		return strings.TrimSuffix(line, "\n")
	}
	var raw struct{ Base64 []byte }
	if json.Unmarshal(data, &raw) == nil && raw.Base64 != nil {
		return bytes.TrimSuffix(raw.Base64, []byte("\n"))
	}
	return string(data)
}

// startReplacement starts a new interpreter after the previous one has ended.
func (s *session) startReplacement() {
	ctx, cancel := context.WithCancel(context.Background())
	s.starting = cancel
	s.engine.mu.Lock()
	if s.engine.closed {
		s.engine.mu.Unlock()
		return // Close has requested a kill
	}
	s.engine.work.Add(1)
	s.engine.mu.Unlock()
	plan := *s.launch
	go func() {
		defer s.engine.work.Done()
		p, err := s.engine.startInterpreter(ctx, &plan)
		if !s.post(request{replacement: &replacement{p, err}}) && p != nil {
			p.discard()
		}
	}()
}

// handleReplacement adopts the interpreter that startReplacement started.
func (s *session) handleReplacement(st *replacement) {
	s.starting()
	s.starting = nil
	if st.err == nil && s.shutdown != nil {
		st.interp.discard()
		return
	}
	if err := st.err; err != nil {
		last := s.turns.Latest()
		if t := s.turns.First(); t != nil {
			s.turns.Finish(t, spool.Done{Outcome: spool.TurnCrashed, Error: "could not start a new interpreter: " + err.Error(), ErrorClass: ClassStart})
		}
		s.dropQueued(last, "could not start a new interpreter")
		return
	}
	s.adopt(st.interp)
	s.notice(spool.Notice{
		Code: NoticeRestarted, Level: "warning",
		Text: "started a new interpreter (" + st.interp.executable + ", Python " + st.interp.version + ", pid " + strconv.Itoa(st.interp.tree.Pid()) + "); the state of the previous one is lost, and no cell was run again",
	})
}
