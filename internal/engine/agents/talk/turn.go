package talk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// MaxText is the most of one text that an event holds. The whole of it goes
// into a blob.
const MaxText = 1 << 20

// Outlet is where a turn's events go: the part of a sink that is needed.
type Outlet interface {
	Append(e spool.Event) (spool.Seq, error)
	PutBlob(mime string, r io.Reader) (spool.Blob, error)
}

// Result is an agent's last word about a turn.
type Result struct {
	Outcome spool.TurnOutcome
	Answer  string
	Error   string
	Class   string // found from err if empty
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

// Run is what the turns of a run have in common.
type Run struct {
	Out     Outlet
	Agent   string
	Cwd     string
	Deltas  bool
	KeepRaw bool

	Session string         // the session, once known
	Started bool           // the started event was written
	actions map[string]int // uses of each native action id, so that ours are unique
	notes   int
	Spent   agent.Spend // by the turns before
	Bytes   int64       // of all events
	Err     error       // the log takes no more

	// OnSession is called when the id of the session is known, before anybody
	// else can know it. It may set turn.held.
	OnSession func(t *Turn, id string)
	// OnAsk writes an ask to the log. The event is complete, but for changes
	// that OnAsk makes to the ask. The key comes back with
	// [Conversation.Answer].
	OnAsk func(e spool.Event, a spool.Ask, key string) error
	// OnWithdraw is called when the agent no longer waits for an answer.
	OnWithdraw func(t *Turn, key string)
	// Base is what the session had used when the turn began, if
	// somebody knows.
	Base         agent.Spend
	BaseKnown    bool
	AskTime      time.Duration // that an ask stays open
	Pid          int           // of the process
	Transport    string
	Capabilities []string
}

func NewTurn(run *Run, seq spool.Seq) *Turn {
	return &Turn{Seq: seq, Run: run, open: make(map[string]agent.Action)}
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

// Held reports whether events are kept back.
func (t *Turn) Held() bool { return t.held }

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
			t.Put(spool.KindMessage, m, nil)
		}
		return
	}
	if m.Role == "" && m.Phase != agent.PhaseCommentary && !m.History && m.Parent == "" {
		t.answer = m.Text
	}
	m.Text, m.Blob = t.fit(m.Text)
	t.Put(spool.KindMessage, m, nil)
}

// Reasoning shows what the agent thinks.
func (t *Turn) Reasoning(r agent.Reasoning) {
	if r.Text == "" || r.Delta && !t.Run.Deltas {
		return
	}
	r.Text, r.Blob = t.fit(r.Text)
	t.Put(spool.KindReasoning, r, nil)
}

// Action tells of an action under the agent's own id. Ids that an agent uses
// again in a later turn are made unique; a second start becomes an update, and
// an end fills in what the start has said.
func (t *Turn) Action(a agent.Action) {
	key := a.ID
	begun, known := t.open[key]
	if known {
		a.ID = begun.ID
		inherit(&a, begun)
		if a.Phase == agent.ActionStarted {
			a.Phase = agent.ActionUpdated
		}
	} else {
		a.ID = t.unique(key)
		if a.Phase == agent.ActionUpdated {
			a.Phase = agent.ActionStarted
		}
	}
	if a.Kind == "" {
		a.Kind = agent.ActionOther
	}
	switch {
	case a.Phase != agent.ActionCompleted:
		if !known {
			t.order = append(t.order, key)
		}
		kept := a
		if kept.Input == nil {
			kept.Input = begun.Input
		}
		kept.Output, kept.OutputBlob, kept.Message = "", nil, ""
		t.open[key] = kept
	case known:
		t.forget(key)
	}
	a.Output, a.OutputBlob = t.fit(a.Output)
	t.fitInput(&a)
	t.Put(spool.KindAction, a, nil)
}

// inherit fills in what an update left out.
func inherit(a *agent.Action, from agent.Action) {
	if a.Kind == "" || a.Kind == agent.ActionOther {
		a.Kind = from.Kind
	}
	if a.Title == "" {
		a.Title = from.Title
	}
	if a.Tool == "" {
		a.Tool = from.Tool
	}
	if a.Input == nil && a.Phase == agent.ActionCompleted {
		a.Input = from.Input
	}
	if a.Changes == nil {
		a.Changes = from.Changes
	}
	if a.Parent == "" {
		a.Parent = from.Parent
	}
}

// RunningAction is the action of that id that started and did not end.
func (t *Turn) RunningAction(id string) agent.Action { return t.open[id] }

// Running reports whether an action of that id started and did not end.
func (t *Turn) Running(id string) bool { _, ok := t.open[id]; return ok }

func (t *Turn) unique(id string) string {
	if id == "" {
		t.Run.notes++
		id = fmt.Sprintf("%s.%d", t.Run.Agent, t.Run.notes)
	}
	if t.Run.actions == nil {
		t.Run.actions = make(map[string]int)
	}
	n := t.Run.actions[id]
	t.Run.actions[id] = n + 1
	if n == 0 {
		return id
	}
	return t.unique(fmt.Sprintf("%s#%d", id, n+1))
}

func (t *Turn) forget(key string) {
	delete(t.open, key)
	for i, k := range t.order {
		if k == key {
			t.order = append(t.order[:i], t.order[i+1:]...)
			return
		}
	}
}

// Acting reports whether an action runs.
func (t *Turn) Acting() bool {
	for _, a := range t.open {
		if a.Kind != agent.ActionTurn {
			return true
		}
	}
	return false
}

// CloseActions ends what the agent did not end itself.
func (t *Turn) CloseActions(message string) {
	for len(t.order) > 0 {
		a := t.open[t.order[0]]
		t.Action(agent.Action{ID: t.order[0], Kind: a.Kind, Phase: agent.ActionCompleted, Title: a.Title,
			OK: new(false), Synthetic: true, Message: message})
	}
}

// Plan shows what the agent means to do.
func (t *Turn) Plan(p agent.Plan) { t.Put(spool.KindPlan, p, nil) }

// Retry says that a request is made again.
func (t *Turn) Retry(r agent.Retry) {
	if r.Class == "" {
		r.Class = Classify(r.Reason, r.Status)
	}
	t.Put(spool.KindRetry, r, nil)
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

// Ask asks. The answer comes to conversation.answer with the key.
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

// Result is the agent's last word about the turn, or nil.
func (t *Turn) Result() *Result { return t.result }

// SessionKnown reports whether the run has a session.
func (t *Turn) SessionKnown() bool { return t.Run.Started }

// LastText is the last message of the agent that may be the answer.
func (t *Turn) LastText() string { return t.answer }

// WantsDeltas reports whether pieces of messages are logged.
func (t *Turn) WantsDeltas() bool { return t.Run.Deltas }

// NoProgress says that the line shows no progress: the agent counts as silent.
func (t *Turn) NoProgress() { t.stuck = true }

// Finish takes the agent's last word. The first one counts.
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

// fit returns what of a text an event can hold, and a blob of the whole if
// that is more.
func (t *Turn) fit(s string) (string, *spool.Blob) {
	if len(s) <= MaxText {
		return s, nil
	}
	head := strings.ToValidUTF8(s[:MaxText], "\uFFFD")
	blob, err := t.Run.Out.PutBlob("text/plain; charset=utf-8", strings.NewReader(s))
	if err != nil {
		t.Notice("warning", NoticeWarning, fmt.Sprintf("a text of %d bytes was cut to %d: %v", len(s), MaxText, err))
		return head, nil
	}
	return head, &blob
}

// fitInput keeps the arguments of an action within bounds.
func (t *Turn) fitInput(a *agent.Action) {
	if len(a.Input) > MaxText {
		a.Input = cutJSON(t, a.Input)
	}
	if len(a.Detail) > MaxText {
		a.Detail = cutJSON(t, a.Detail)
	}
	for i := range a.Changes {
		if len(a.Changes[i].Diff) > MaxText {
			changes := append([]agent.FileChange(nil), a.Changes...)
			changes[i].Diff = strings.ToValidUTF8(changes[i].Diff[:MaxText], "\uFFFD")
			a.Changes = changes
		}
	}
}

// cutJSON replaces a large JSON value by a blob of it.
func cutJSON(t *Turn, v json.RawMessage) json.RawMessage {
	blob, err := t.Run.Out.PutBlob("application/json", bytes.NewReader(v))
	if err != nil {
		return json.RawMessage(`{"dropped":` + fmt.Sprint(len(v)) + `}`)
	}
	b, err := json.Marshal(blob)
	if err != nil {
		return nil
	}
	return b
}

// Title shortens a text to one line for a title.
func Title(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = strings.TrimSpace(s[:i]) + " …"
	}
	for i, n := 0, 0; i < len(s); n++ {
		if n == 300 {
			return s[:i] + "…"
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return s
}
