package agents

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// piRPC is pi --mode rpc: one process, prompt after prompt, that can be
// aborted and steered. It asks only where an extension of it does.
type piRPC struct {
	setup
	piLines
	w       wire
	last    int
	replies map[string]func(piReply, *turn)
	ready   bool
	queued  *spool.Prompt
	unsaid  []string // came too late for a turn, and goes into the next
	working bool     // a prompt was taken and is not settled
	aborted bool
	asks    map[string]piAsk
}

// piAsk is a dialog that an extension waits for.
type piAsk struct {
	method    string
	options   []spool.AskOption
	questions []Question
}

// piReply is the answer to a command.
type piReply struct {
	ID      string          `json:"id"`
	Command string          `json:"command"`
	Success bool            `json:"success"`
	Error   string          `json:"error"`
	Data    json.RawMessage `json:"data"`
}

func newPiRPC(s setup) (conversation, error) {
	return &piRPC{setup: s, piLines: piLines{cwd: s.cwd}, replies: make(map[string]func(piReply, *turn)), asks: make(map[string]piAsk)}, nil
}

func (c *piRPC) command() (command, error) {
	argv := append([]string{first(c.config.Program, Pi)}, c.config.Extra...)
	argv = append(argv, "--mode", "rpc")
	return command{argv: append(argv, c.piOptions()...), open: true}, nil
}

// send gives a command to pi. then gets its answer, if one comes.
func (c *piRPC) send(kind string, members map[string]any, then func(piReply, *turn)) {
	c.last++
	id := strconv.Itoa(c.last)
	m := map[string]any{"id": id, "type": kind}
	for k, v := range members {
		m[k] = v
	}
	if then != nil {
		c.replies[id] = then
	}
	c.write(m)
}

func (c *piRPC) write(m map[string]any) {
	b, err := json.Marshal(m)
	if err != nil { // strings and numbers always encode
		return
	}
	c.w.write(append(b, '\n'))
}

// opened asks for the session, which pi does not tell by itself in this mode.
func (c *piRPC) opened(w wire, _ *turn) {
	c.w = w
	if c.fork {
		c.send("clone", nil, func(r piReply, t *turn) {
			if !r.Success {
				t.finish(result{outcome: spool.TurnError, class: agent.ClassSession, err: "fork the session: " + r.Error})
				return
			}
			c.send("get_state", nil, c.begin)
		})
		return
	}
	c.send("get_state", nil, c.begin)
}

func (c *piRPC) begin(r piReply, t *turn) {
	var state struct {
		ID    string `json:"sessionId"`
		File  string `json:"sessionFile"`
		Name  string `json:"sessionName"`
		Level string `json:"thinkingLevel"`
		Model struct {
			ID string `json:"id"`
		} `json:"model"`
	}
	_ = lenient(r.Data, &state)
	detail, err := json.Marshal(map[string]string{"session_file": state.File, "thinking_level": state.Level})
	if err != nil {
		detail = nil
	}
	t.start(agent.Started{Resume: state.ID, Resumed: c.resume != "" && !c.fork, Title: state.Name, Model: state.Model.ID, Transport: "rpc", Detail: detail})
	c.ready = true
	if p := c.queued; p != nil {
		c.queued = nil
		c.say(*p)
	}
}

func (c *piRPC) prompt(p spool.Prompt, _ *turn) error {
	c.end, c.bad, c.piLines.say, c.aborted = nil, nil, "", false
	if !c.ready {
		c.queued = &p
		return nil
	}
	c.say(p)
	return nil
}

func (c *piRPC) say(p spool.Prompt) {
	c.working = true
	text := strings.Join(append(c.unsaid, p.Text), "\n\n")
	c.unsaid = nil
	c.send("prompt", map[string]any{"message": text}, func(r piReply, t *turn) {
		if !r.Success {
			c.working = false
			t.finish(result{outcome: spool.TurnError, err: first(r.Error, "pi did not take the prompt")})
		}
	})
}

func (c *piRPC) interrupt(t *turn) error {
	if c.queued != nil { // it never began
		c.queued = nil
		t.finish(result{outcome: spool.TurnInterrupted, class: agent.ClassStopped, err: "interrupted before it began"})
		return nil
	}
	c.aborted = true
	c.send("abort", nil, func(piReply, *turn) {})
	return nil
}

func (c *piRPC) steer(p spool.Prompt, _ *turn) error {
	if !c.working {
		return spool.ErrUnsupported
	}
	c.send("steer", map[string]any{"message": p.Text}, func(r piReply, t *turn) {
		if !r.Success {
			c.unsaid = append(c.unsaid, p.Text)
			t.notice("warning", NoticeNotSteered, "pi did not take what was said in between, so it goes with the next prompt: "+r.Error)
		}
	})
	return nil
}

func (c *piRPC) line(b []byte, t *turn) {
	var l struct {
		Type string `json:"type"`
	}
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	switch l.Type {
	case "response":
		c.reply(b, t)
		return
	case "extension_ui_request":
		c.dialog(b, t)
		return
	case "extension_error":
		t.put(spool.KindNotice, spool.Notice{Level: "warning", Code: NoticeWarning, Text: "an extension of pi failed", Data: json.RawMessage(b)}, nil, nil)
		return
	case "agent_settled":
		c.working = false
	}
	had := t.result != nil
	c.piLines.line(b, t)
	if !had && t.result != nil {
		c.working = false
		clear(c.asks)
		// pi tells of an abort as of any other failure.
		if c.aborted && t.result.outcome != spool.TurnOK {
			t.result.outcome, t.result.class = spool.TurnInterrupted, agent.ClassStopped
		}
	}
}

func (c *piRPC) reply(b []byte, t *turn) {
	var r piReply
	_ = lenient(b, &r)
	then, ok := c.replies[r.ID]
	delete(c.replies, r.ID)
	switch {
	case ok:
		then(r, t)
	case !r.Success:
		t.notice("warning", NoticeWarning, "pi refused "+first(r.Command, "a command")+": "+r.Error)
	}
}

func (c *piRPC) ended(x exit, t *turn) { c.piLines.ended(x, t) }

// dialog takes what an extension shows or asks.
func (c *piRPC) dialog(b []byte, t *turn) {
	var r struct {
		ID      string   `json:"id"`
		Method  string   `json:"method"`
		Title   string   `json:"title"`
		Message string   `json:"message"`
		Options []string `json:"options"`
		Level   string   `json:"notifyType"`
		Hint    string   `json:"placeholder"`
		Prefill string   `json:"prefill"`
	}
	_ = lenient(b, &r)
	ask := piAsk{method: r.Method}
	switch r.Method {
	case "confirm":
		ask.options = []spool.AskOption{{ID: agent.Allow, Label: "yes", Kind: allowOnce}, {ID: agent.Deny, Label: "no", Kind: rejectOnce}}
		c.asks[r.ID] = ask
		t.ask(r.ID, approvalAsk(Approval{Kind: agent.ActionOther, Tool: "extension", Reason: r.Message}, first(r.Title, r.Message), ask.options))
	case "select", "input", "editor":
		q := Question{ID: "answer", Text: first(r.Title, r.Message, r.Hint)}
		for _, o := range r.Options {
			q.Options = append(q.Options, spool.AskOption{ID: o, Label: o})
		}
		ask.questions = []Question{q}
		c.asks[r.ID] = ask
		t.ask(r.ID, questionAsk(Questions{Questions: ask.questions}, ""))
	case "notify":
		t.notice(first(r.Level, "info"), NoticeWarning, r.Message)
	case "setStatus", "setWidget", "setTitle", "set_editor_text": // for a screen
	default:
		t.unknown("dialog "+r.Method, b)
		c.write(map[string]any{"type": "extension_ui_response", "id": r.ID, "cancelled": true})
	}
}

func (c *piRPC) answer(key string, d agent.Decision, t *turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	delete(c.asks, key)
	m := map[string]any{"type": "extension_ui_response", "id": key}
	switch {
	case ask.method == "confirm":
		m["confirmed"] = understood(ask.options, d, t).Choice == agent.Allow || d.Choice == agent.AllowSession
	case declined(d):
		m["cancelled"] = true
	default:
		m["value"] = answersTo(ask.questions, d)["answer"]
	}
	c.write(m)
	return nil
}
