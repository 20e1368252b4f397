package agents

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

// outlet is where a turn's events go: the part of a sink that is needed.
type outlet interface {
	Append(e spool.Event) (spool.Seq, error)
	PutBlob(mime string, r io.Reader) (spool.Blob, error)
}

// result is an agent's last word about a turn.
type result struct {
	outcome spool.TurnOutcome
	answer  string
	err     string
	class   string // found from err if empty
}

// turn writes the events of one turn and holds what must be true of them: a
// session starts once, an action has one start and one end, and nothing comes
// after the result but what the agent itself still says. Its methods are
// called by one goroutine.
type turn struct {
	seq  spool.Seq
	id   string // of the input
	say  spool.Prompt
	run  *shared
	raw  []byte // the line that is being translated, until it is kept
	born time.Time

	open   map[string]agent.Action // actions that started and did not end
	order  []string                // of open, oldest first
	result *result
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

// pending is an event that waits, and what to do with its seq.
type pending struct {
	event spool.Event
	then  func(spool.Seq)
}

// shared is what the turns of a run have in common.
type shared struct {
	out     outlet
	agent   string
	cwd     string
	deltas  bool
	keepRaw bool

	resume  string         // the session, once known
	started bool           // the started event was written
	actions map[string]int // uses of each native action id, so that ours are unique
	notes   int
	spent   agent.Spend // by the turns before
	bytes   int64       // of all events
	err     error       // the log takes no more

	// learnt is called when the id of the session is known, before anybody
	// else can know it. It may set turn.held.
	learnt func(t *turn, id string)
	// asked is called when an ask is in the log.
	asked func(t *turn, key string, seq spool.Seq, a spool.Ask)
	// withdrawn is called when the agent no longer waits for an answer.
	withdrawn func(t *turn, key string)
	// base is what the session had used when the turn began, if
	// somebody knows.
	base      agent.Spend
	baseKnown bool
	askTime   time.Duration // that an ask stays open
	pid       int           // of the process
	transport string
	can       []string
}

func newTurn(run *shared, seq spool.Seq) *turn {
	return &turn{seq: seq, run: run, open: make(map[string]agent.Action), born: time.Now()}
}

// put writes an event, or keeps it while the turn is held.
func (t *turn) put(kind spool.Kind, payload any, raw []byte, then func(spool.Seq)) {
	data, err := json.Marshal(payload)
	if err != nil { // a raw message that is no JSON: say so rather than nothing
		data, _ = json.Marshal(spool.Notice{Code: NoticeUnparsed, Level: "warning", Text: fmt.Sprintf("a %s event did not encode: %v", kind, err)})
		kind = spool.KindNotice
	}
	if !utf8.Valid(data) { // what an agent passes on need not be
		data = bytes.ToValidUTF8(data, []byte("\uFFFD"))
	}
	if raw == nil && t.run.keepRaw && len(t.raw)+len(data) < spool.MaxEventBytes {
		raw, t.raw = t.raw, nil
	}
	e := spool.Event{Kind: kind, Turn: t.seq, Data: data, Bytes: raw, Time: time.Now()}
	t.run.bytes += int64(e.Size())
	if t.held {
		t.waiting = append(t.waiting, pending{e, then})
		t.size += e.Size()
		return
	}
	t.write(pending{e, then})
}

func (t *turn) write(p pending) {
	seq, err := t.run.out.Append(p.event)
	if err != nil {
		t.run.err = err
		return
	}
	if p.then != nil {
		p.then(seq)
	}
}

// release writes what was held.
func (t *turn) release() {
	t.held = false
	for i, p := range t.waiting {
		t.write(p)
		t.waiting[i] = pending{}
	}
	t.waiting, t.size = nil, 0
}

// session says that the id of the session is known, without saying more about
// it. It is enough to call it with every line.
func (t *turn) session(id string) { t.start(agent.Started{Resume: id}) }

// start says that the session is known. Only the first call in a run counts:
// agents repeat themselves.
func (t *turn) start(s agent.Started) {
	if s.Resume == "" {
		return
	}
	run := t.run
	if run.started {
		if s.Resume != run.resume {
			t.notice("warning", NoticeSession, fmt.Sprintf("the agent goes on in session %s, not in %s", s.Resume, run.resume))
			run.resume = s.Resume
		}
		return
	}
	run.started = true
	s.Agent, s.Pid, s.Transport, s.Capabilities = run.agent, run.pid, run.transport, run.can
	if run.learnt != nil {
		run.learnt(t, s.Resume)
	}
	run.resume = s.Resume
	if s.Cwd == "" {
		s.Cwd = run.cwd
	}
	t.put(spool.KindStarted, s, nil, nil)
}

// message says something. It becomes the answer of a result without one,
// unless it is commentary, a piece, history, or a subagent's.
func (t *turn) message(m agent.Message) {
	if m.Delta {
		if t.run.deltas && m.Text != "" {
			t.put(spool.KindMessage, m, nil, nil)
		}
		return
	}
	if m.Role == "" && m.Phase != agent.PhaseCommentary && !m.History && m.Parent == "" {
		t.answer = m.Text
	}
	m.Text, m.Blob = t.fit(m.Text)
	t.put(spool.KindMessage, m, nil, nil)
}

// reasoning shows what the agent thinks.
func (t *turn) reasoning(r agent.Reasoning) {
	if r.Text == "" || r.Delta && !t.run.deltas {
		return
	}
	r.Text, r.Blob = t.fit(r.Text)
	t.put(spool.KindReasoning, r, nil, nil)
}

// action tells of an action under the agent's own id. Ids that an agent uses
// again in a later turn are made unique; a second start becomes an update, and
// an end fills in what the start has said.
func (t *turn) action(a agent.Action) {
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
	t.put(spool.KindAction, a, nil, nil)
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

// running reports whether an action of that id started and did not end.
func (t *turn) running(id string) bool { _, ok := t.open[id]; return ok }

func (t *turn) unique(id string) string {
	if id == "" {
		t.run.notes++
		id = fmt.Sprintf("%s.%d", t.run.agent, t.run.notes)
	}
	if t.run.actions == nil {
		t.run.actions = make(map[string]int)
	}
	n := t.run.actions[id]
	t.run.actions[id] = n + 1
	if n == 0 {
		return id
	}
	return t.unique(fmt.Sprintf("%s#%d", id, n+1))
}

func (t *turn) forget(key string) {
	delete(t.open, key)
	for i, k := range t.order {
		if k == key {
			t.order = append(t.order[:i], t.order[i+1:]...)
			return
		}
	}
}

// closeActions ends what the agent did not end itself.
func (t *turn) closeActions(message string) {
	for len(t.order) > 0 {
		a := t.open[t.order[0]]
		t.action(agent.Action{ID: t.order[0], Kind: a.Kind, Phase: agent.ActionCompleted, Title: a.Title,
			OK: no(), Synthetic: true, Message: message})
	}
}

// plan shows what the agent means to do.
func (t *turn) plan(p agent.Plan) { t.put(spool.KindPlan, p, nil, nil) }

// retry says that a request is made again.
func (t *turn) retry(r agent.Retry) {
	if r.Class == "" {
		r.Class = classify(r.Reason, r.Status)
	}
	t.put(spool.KindRetry, r, nil, nil)
}

// notice says something besides.
func (t *turn) notice(level, code, text string) {
	t.put(spool.KindNotice, spool.Notice{Level: level, Code: code, Text: text}, nil, nil)
}

// unknown keeps a line that is JSON but says nothing we know.
func (t *turn) unknown(what string, line []byte) {
	n := spool.Notice{Level: "debug", Code: NoticeUnknown, Text: what}
	if len(line) <= MaxText && utf8.Valid(line) && json.Valid(line) {
		n.Data = bytes.Clone(line)
		t.put(spool.KindNotice, n, nil, nil)
		return
	}
	t.keep(n, line)
}

// unparsed keeps a line that is no JSON.
func (t *turn) unparsed(line []byte, err error) {
	t.keep(spool.Notice{Level: "warning", Code: NoticeUnparsed,
		Text: fmt.Sprintf("a line of %d bytes is not understood: %v", len(line), err)}, line)
}

// keep writes a notice with a line as it was: beside it, or in a blob with
// its beginning beside.
func (t *turn) keep(n spool.Notice, line []byte) {
	if len(line) > MaxText {
		if blob, err := t.run.out.PutBlob("application/octet-stream", bytes.NewReader(line)); err == nil {
			n.Data, _ = json.Marshal(blob) // plain fields always encode
			line = line[:MaxText]
		}
		line = line[:min(len(line), spool.MaxEventBytes/2)]
	}
	t.put(spool.KindNotice, n, bytes.Clone(line), nil)
}

// ask asks. The answer comes to conversation.answer with the key.
func (t *turn) ask(key string, a spool.Ask) {
	if t.run.askTime > 0 && a.Deadline.IsZero() {
		a.Deadline = time.Now().Add(t.run.askTime)
	}
	t.put(spool.KindAsk, a, nil, func(seq spool.Seq) {
		if t.run.asked != nil {
			t.run.asked(t, key, seq, a)
		}
	})
}

// withdraw says that the agent no longer waits for an answer.
func (t *turn) withdraw(key string) {
	if t.run.withdrawn != nil {
		t.run.withdrawn(t, key)
	}
}

// finish takes the agent's last word. The first one counts.
func (t *turn) finish(r result) {
	if t.result != nil || t.seq == 0 {
		return
	}
	if r.answer == "" && r.outcome == spool.TurnOK {
		r.answer = t.answer
	}
	if r.class == "" && r.outcome != spool.TurnOK {
		r.class = classify(r.err, 0)
	}
	t.result = &r
}

// fit returns what of a text an event can hold, and a blob of the whole if
// that is more.
func (t *turn) fit(s string) (string, *spool.Blob) {
	if len(s) <= MaxText {
		return s, nil
	}
	head := strings.ToValidUTF8(s[:MaxText], "\uFFFD")
	blob, err := t.run.out.PutBlob("text/plain; charset=utf-8", strings.NewReader(s))
	if err != nil {
		t.notice("warning", NoticeWarning, fmt.Sprintf("a text of %d bytes was cut to %d: %v", len(s), MaxText, err))
		return head, nil
	}
	return head, &blob
}

// fitInput keeps the arguments of an action within bounds.
func (t *turn) fitInput(a *agent.Action) {
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
func cutJSON(t *turn, v json.RawMessage) json.RawMessage {
	blob, err := t.run.out.PutBlob("application/json", bytes.NewReader(v))
	if err != nil {
		return json.RawMessage(`{"dropped":` + fmt.Sprint(len(v)) + `}`)
	}
	b, err := json.Marshal(blob)
	if err != nil {
		return nil
	}
	return b
}

// printable shortens a text to one line for a title.
func printable(s string) string {
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

func yes() *bool      { b := true; return &b }
func no() *bool       { b := false; return &b }
func is(b bool) *bool { return &b }
