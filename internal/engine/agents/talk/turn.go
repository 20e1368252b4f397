package talk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// Result is what an agent reports of a turn at its end.
type Result struct {
	Outcome spool.TurnOutcome
	Answer  string
	Error   string
	Class   string // found from Error if empty
}

// Turn writes the events of one turn and holds what must be true of them: a
// session starts once, an action has one start and one end, and nothing comes
// after the result but what the agent itself still says. Its methods are
// called by one goroutine.
type Turn struct {
	Seq spool.Seq
	Run *Run
	raw []byte // the line that is being translated, until it is kept

	open   map[string]agent.Action // actions that started and did not end
	order  []string                // of open, oldest first
	since  map[string]time.Time    // when those of open started
	result *Result
	steps  int
	used   agent.Spend
	total  *agent.Spend // of the session, where the agent tells that
	told   bool         // used is known
	ctxLen [2]int64     // used and size of the model's window
	stuck  bool         // the last line was no progress: the agent is as good as silent
	answer string       // last thing said, for agents whose result lacks it

	// held keeps events back until the session's lock is ours.
	held    bool
	waiting []pending
	size    int
}

// pending is an event that waits.
type pending struct {
	event spool.Event
	ask   *question // of an ask event
}

// question is an ask and the agent's name for it.
type question struct {
	spool.Ask
	key string
}

// NewTurn returns the turn of an input. Seq zero is for what the agent says
// between turns.
func NewTurn(run *Run, seq spool.Seq) *Turn {
	return &Turn{Seq: seq, Run: run, open: make(map[string]agent.Action), since: make(map[string]time.Time)}
}

// Put writes an event, or keeps it while the turn is held.
func (t *Turn) Put(kind spool.Kind, payload any, raw []byte) {
	t.put(kind, payload, raw, nil)
}

func (t *Turn) put(kind spool.Kind, payload any, raw []byte, ask *question) {
	data, err := json.Marshal(payload)
	if err != nil { // a raw message that is no JSON: say so rather than nothing
		data, _ = json.Marshal(spool.Notice{Code: NoticeUnparsed, Level: "warning", Text: fmt.Sprintf("a %s event did not encode: %v", kind, err)})
		kind = spool.KindNotice
	}
	if !utf8.Valid(data) { // what an agent passes on need not be
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	if raw == nil && t.Run.KeepRaw && len(t.raw)+len(data) < spool.MaxEventBytes {
		raw, t.raw = t.raw, nil
	}
	e := spool.Event{Kind: kind, Turn: t.Seq, Data: data, Bytes: raw, Time: time.Now()}
	t.Run.Bytes += int64(e.Size())
	if t.held {
		t.waiting = append(t.waiting, pending{e, ask})
		t.size += e.Size()
		return
	}
	t.write(pending{e, ask})
}

func (t *Turn) write(p pending) {
	var err error
	switch {
	case p.ask == nil || p.event.Kind != spool.KindAsk:
		_, err = t.Run.Out.Append(p.event)
	case t.Run.OnAsk != nil:
		err = t.Run.OnAsk(p.event, p.ask.Ask, p.ask.key)
	}
	if err != nil {
		t.Run.Err = err
	}
}

// Hold keeps events back until release.
func (t *Turn) Hold() { t.held = true }

// HeldBytes is the size of the events that are kept back.
func (t *Turn) HeldBytes() int { return t.size }

// Release writes what was held.
func (t *Turn) Release() {
	t.held = false
	for i, p := range t.waiting {
		t.write(p)
		t.waiting[i] = pending{}
	}
	t.waiting, t.size = nil, 0
}

// Read gives a line of the agent to its conversation. It reports whether the
// line shows progress.
func (t *Turn) Read(c Conversation, line []byte) (progress bool) {
	if t.Run.KeepRaw {
		t.raw = line
	}
	t.stuck = false
	c.Line(line, t)
	return !t.stuck
}

// Session says that the id of the session is known, without saying more about
// it. It is enough to call it with every line.
func (t *Turn) Session(id string) { t.Start(agent.Started{Resume: id}) }

// Start says that the session is known. Only the first call in a run counts:
// agents repeat themselves.
func (t *Turn) Start(s agent.Started) {
	if s.Resume == "" {
		return
	}
	run := t.Run
	if run.Started {
		if s.Resume != run.Session {
			t.Notice("warning", NoticeSession, fmt.Sprintf("the agent goes on in session %s, not in %s", s.Resume, run.Session))
			run.Session = s.Resume
		}
		return
	}
	run.Started = true
	s.Agent, s.Pid, s.Transport, s.Capabilities = run.Agent, run.Pid, run.Transport, run.Capabilities
	if run.OnSession != nil {
		run.OnSession(t, s.Resume)
	}
	run.Session = s.Resume
	if s.Cwd == "" {
		s.Cwd = run.Cwd
	}
	t.Put(spool.KindStarted, s, nil)
}

// Message says something. It becomes the answer of a result without one,
// unless it is commentary, a piece, history, or a subagent's.
func (t *Turn) Message(m agent.Message) {
	if m.Delta {
		if t.Run.Deltas && m.Text != "" {
			t.Put(agent.KindMessage, m, nil)
		}
		return
	}
	if m.Role == "" && m.Phase != agent.PhaseCommentary && !m.History && m.Parent == "" {
		t.answer = m.Text
	}
	m.Text, m.Blob = t.fit(m.Text)
	t.Put(agent.KindMessage, m, nil)
}

// Reasoning shows what the agent thinks.
func (t *Turn) Reasoning(r agent.Reasoning) {
	if r.Text == "" || r.Delta && !t.Run.Deltas {
		return
	}
	r.Text, r.Blob = t.fit(r.Text)
	t.Put(agent.KindReasoning, r, nil)
}

// Plan shows what the agent means to do.
func (t *Turn) Plan(p agent.Plan) { t.Put(agent.KindPlan, p, nil) }

// Retry says that a request is made again.
func (t *Turn) Retry(r agent.Retry) {
	if r.Class == "" {
		r.Class = Classify(r.Reason, r.Status)
	}
	t.Put(agent.KindRetry, r, nil)
}

// Notice says something besides.
func (t *Turn) Notice(level, code, text string) {
	t.Put(spool.KindNotice, spool.Notice{Level: level, Code: code, Text: text}, nil)
}

// Unknown keeps a line that is JSON but says nothing we know.
func (t *Turn) Unknown(what string, line []byte) {
	n := spool.Notice{Level: "debug", Code: NoticeUnknown, Text: what}
	if len(line) <= MaxText && utf8.Valid(line) && json.Valid(line) {
		n.Data = bytes.Clone(line)
		t.Put(spool.KindNotice, n, nil)
		return
	}
	t.keep(n, line)
}

// Unparsed keeps a line that is no JSON.
func (t *Turn) Unparsed(line []byte, err error) {
	t.keep(spool.Notice{Level: "warning", Code: NoticeUnparsed,
		Text: fmt.Sprintf("a line of %d bytes is not understood: %v", len(line), err)}, line)
}

// keep writes a notice with a line as it was: beside it, or in a blob with
// its beginning beside.
func (t *Turn) keep(n spool.Notice, line []byte) {
	if len(line) > MaxText {
		if blob, err := t.Run.Out.PutBlob("application/octet-stream", bytes.NewReader(line)); err == nil {
			n.Data, _ = json.Marshal(blob) // plain fields always encode
			line = line[:MaxText]
		}
		line = line[:min(len(line), spool.MaxEventBytes/2)]
	}
	t.Put(spool.KindNotice, n, bytes.Clone(line))
}

// Ask puts a question. The answer comes to [Conversation.Answer] with the key.
func (t *Turn) Ask(key string, a spool.Ask) {
	if t.Run.AskTime > 0 && a.Deadline.IsZero() {
		a.Deadline = time.Now().UTC().Add(t.Run.AskTime)
	}
	a.Data = bytes.ToValidUTF8(a.Data, []byte("\uFFFD"))
	t.put(spool.KindAsk, a, nil, &question{a, key})
}

// Withdraw says that the agent no longer waits for an answer.
func (t *Turn) Withdraw(key string) {
	if t.Run.OnWithdraw != nil {
		t.Run.OnWithdraw(t, key)
	}
}

// Result is what the agent reported of the turn at its end, or nil.
func (t *Turn) Result() *Result { return t.result }

// SessionKnown reports whether the run has a session.
func (t *Turn) SessionKnown() bool { return t.Run.Started }

// LastText is the last message of the agent that may be the answer.
func (t *Turn) LastText() string { return t.answer }

// WantsDeltas reports whether pieces of messages are logged.
func (t *Turn) WantsDeltas() bool { return t.Run.Deltas }

// NoProgress says that the line shows no progress: the agent counts as silent.
func (t *Turn) NoProgress() { t.stuck = true }

// Finish takes the result of the turn. The first one counts.
func (t *Turn) Finish(r Result) {
	if t.result != nil || t.Seq == 0 {
		return
	}
	if r.Answer == "" && r.Outcome == spool.TurnOK {
		r.Answer = t.answer
	}
	if r.Class == "" && r.Outcome != spool.TurnOK {
		r.Class = Classify(r.Error, 0)
	}
	t.result = &r
}
