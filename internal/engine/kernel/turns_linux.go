package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
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
		case r.input != nil:
			s.input(r.input)
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

func (s *session) input(in *spool.Input) {
	switch in.Kind {
	case spool.InputCell:
		t := &turn{seq: in.Seq, id: in.ID}
		if err := json.Unmarshal(in.Data, &t.cell); err != nil {
			s.began()
			s.finishTurn(t, spool.Done{Outcome: spool.TurnError, Error: "the cell does not decode: " + err.Error(), ErrorClass: "invalid"})
			return
		}
		s.queue = append(s.queue, t)
		s.latest = t.seq
		for len(s.early) > 0 && s.early[0] <= t.seq {
			if s.early[0] == t.seq {
				s.cancelQueued(t.seq)
			}
			s.early = s.early[1:]
		}
	case spool.InputAnswer:
		var a spool.Answer
		if err := json.Unmarshal(in.Data, &a); err == nil {
			s.answer(&a)
		}
	}
}

// began counts a cell that no longer waits.
func (s *session) began() {
	s.mu.Lock()
	s.waiting--
	s.mu.Unlock()
}

// next begins the next turn, or a fork, if nothing runs.
func (s *session) next() {
	if s.turn != nil || s.forkSent || s.ending != nil || s.refused {
		return
	}
	if s.py != nil && !s.py.killed.IsZero() {
		return // the next interpreter is for it
	}
	if s.py != nil && len(s.forks) > 0 {
		s.sendFork()
		return
	}
	if len(s.queue) == 0 || s.starting != nil {
		return
	}
	if s.py == nil {
		s.restart()
		return
	}
	t := s.queue[0]
	s.queue = s.queue[1:]
	s.began()
	s.settle() // what came before belongs to the run
	s.output.reset()
	s.turn = t
	t.begun = time.Now()
	s.send(dict{"t": "cell", "id": int64(t.seq), "code": t.cell.Code, "silent": t.cell.Silent, "count": !t.cell.NoHistory})
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
		_ = unix.EpollCtl(s.epfd, unix.EPOLL_CTL_DEL, s.py.ctl, nil)
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
		if t := s.turn; t != nil && t.said != nil && t.strength < 4 {
			s.turnDone(t.said)
		}
	case "result", "display":
		d, err := display(m, s.out)
		if err != nil {
			s.notice(spool.Notice{Code: NoticeOversize, Text: "part of a display is left out: " + err.Error(), Level: "warning"})
		}
		if kind == "result" {
			s.event(spool.KindResult, d)
		} else {
			d.Count = 0
			s.event(spool.KindDisplay, d)
			s.noteStatus(m)
		}
	case "clear":
		s.event(spool.KindDisplay, python.Display{Clear: true, Wait: flag(m, "wait")})
	case "error":
		s.event(spool.KindException, python.Exception{Name: text(m, "name"), Message: cut(text(m, "value")), Traceback: cut(text(m, "tb"))})
		if s.turn != nil {
			s.turn.failure = text(m, "name") + ": " + text(m, "value")
		}
	case "ask":
		s.ask(m)
	case "unask":
		s.unask(number(m, "k"))
	case "pause":
		s.pause()
	case "resume":
		s.resume()
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
	switch t := s.turn; {
	case t == nil:
	case t.strength < 3 || s.ending != nil:
		s.turnDone(m)
	default:
		t.said = m
		s.send(dict{"t": "alive"})
	}
}

// turnDone ends the turn as the interpreter says.
func (s *session) turnDone(m dict) {
	t := s.turn
	s.settle()
	d := spool.Done{ExecutionCount: int(number(m, "n"))}
	switch text(m, "status") {
	case "ok":
		d.Outcome = spool.TurnOK
	case "interrupted":
		d.Outcome = spool.TurnInterrupted
		d.Error, d.ErrorClass = t.failure, "KeyboardInterrupt"
		if !t.stopping { // it raised that by itself
			d.Outcome = spool.TurnError
		}
		if t.endedBy == "timeout" {
			d.Outcome = spool.TurnTimeout
		}
	default:
		d.Outcome = spool.TurnError
		d.Error = t.failure
		d.ErrorClass, _, _ = strings.Cut(t.failure, ":")
		if t.endedBy == "timeout" { // what the interrupt led to
			d.Outcome = spool.TurnTimeout
		}
	}
	if t.stopping && d.Outcome != spool.TurnOK { // else it was faster
		d.EndedBy, d.StoppedWith = t.endedBy, t.means()
		if d.Outcome == spool.TurnTimeout {
			d.Error = fmt.Sprintf("the cell did not end within %v; it was interrupted, and the state is kept", t.limit)
		}
	}
	s.finishTurn(t, d)
}

// finishTurn logs that a turn is over. What it asked is over, too.
func (s *session) finishTurn(t *turn, d spool.Done) {
	running := s.turn == t
	if running {
		s.flushTail()
	}
	d.ID = t.id
	d.Error = cut(d.Error)
	if !t.begun.IsZero() {
		d.DurationMs = time.Since(t.begun).Milliseconds()
	}
	for seq, a := range s.asks {
		if a.turn == t.seq {
			delete(s.asks, seq)
		}
	}
	s.append(spool.Event{Kind: spool.KindDone, Turn: t.seq, Data: encode(d)})
	if running {
		s.turn = nil
		s.idle = time.Now()
		s.output.reset()
		s.setBlocked(false)
	}
}

// drop ends the turns that wait, which never begin.
func (s *session) drop(why string) {
	queue := s.queue
	s.queue = nil
	for _, t := range queue {
		s.began()
		s.finishTurn(t, spool.Done{Outcome: spool.TurnKilled, Error: "the cell was not run: " + why, ErrorClass: "not_run"})
	}
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
	if s.turn != nil {
		of = s.turn.seq
	}
	seq := s.append(spool.Event{Kind: spool.KindAsk, Data: encode(a)})
	s.asks[seq] = ask{number(m, "k"), a.Kind, of}
	s.pause()
}

// unask says that the interpreter does not wait any more.
func (s *session) unask(n int64) {
	for seq, a := range s.asks {
		if a.number == n {
			delete(s.asks, seq)
			s.resume()
			s.notice(spool.Notice{Code: spool.NoticeAskClosed, Text: "the cell no longer waits for an answer", Ask: seq})
		}
	}
}

// answer passes an answer on.
func (s *session) answer(a *spool.Answer) {
	q, ok := s.asks[a.Ask]
	if !ok {
		return
	}
	delete(s.asks, a.Ask)
	s.resume()
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

// pause stops the clock of the turn; each pause needs its resume.
func (s *session) pause() {
	if t := s.turn; t != nil {
		if t.paused++; t.paused == 1 {
			t.stopped = time.Now()
		}
	}
}

func (s *session) resume() {
	if t := s.turn; t != nil && t.paused > 0 {
		if t.paused--; t.paused == 0 {
			t.lost += time.Since(t.stopped)
		}
	}
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
		if len(s.queue) > 0 {
			t := s.queue[0]
			s.queue = s.queue[1:]
			s.began()
			s.finishTurn(t, spool.Done{Outcome: spool.TurnCrashed, Error: "no fresh interpreter could be started: " + err.Error(), ErrorClass: ClassStart})
		}
		s.drop("no fresh interpreter could be started")
		return
	}
	s.notice(spool.Notice{
		Code: NoticeRestarted, Level: "warning",
		Text: "a fresh interpreter was started (Python " + st.py.version + ", pid " + strconv.Itoa(st.py.tree.Pid()) + "); what the one before knew is gone, and no cell was repeated",
	})
}
