package pi

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// rpcMode is pi --mode rpc: one process, prompt after prompt, that can be
// aborted and steered. It asks only where an extension of it does.
type rpcMode struct {
	talk.Setup
	lines
	w       talk.Wire
	last    int
	replies map[string]func(reply, *talk.Turn)
	ready   bool
	queued  *spool.Prompt
	unsaid  []spool.Prompt // came too late for a turn, and goes into the next
	working bool           // a prompt was taken and is not settled
	aborted bool
	asks    map[string]pendingAsk
}

// pendingAsk is a dialog that an extension waits for.
type pendingAsk struct {
	method    string
	options   []spool.AskOption
	questions []agent.Question
}

// reply is the answer to a command.
type reply struct {
	ID      string          `json:"id"`
	Command string          `json:"command"`
	Success bool            `json:"success"`
	Error   string          `json:"error"`
	Data    json.RawMessage `json:"data"`
}

func newRPC(s talk.Setup) (talk.Conversation, error) {
	return &rpcMode{Setup: s, lines: lines{cwd: s.Cwd}, replies: make(map[string]func(reply, *talk.Turn)), asks: make(map[string]pendingAsk)}, nil
}

func (c *rpcMode) Command() (talk.Command, error) {
	argv := append([]string{cmp.Or(c.Config.Program, agent.Pi)}, c.Config.Extra...)
	argv = append(argv, "--mode", "rpc")
	return talk.Command{Argv: append(argv, sharedArgs(c.Setup)...), Open: true}, nil
}

// send gives a command to pi. then gets its answer, if one comes.
func (c *rpcMode) send(kind string, members map[string]any, then func(reply, *talk.Turn)) {
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

func (c *rpcMode) write(m map[string]any) {
	b, err := json.Marshal(m)
	if err != nil { // strings and numbers always encode
		return
	}
	c.w.Write(append(b, '\n'))
}

// Opened asks for the session, which pi does not tell by itself in this mode.
func (c *rpcMode) Opened(w talk.Wire, _ *talk.Turn) {
	c.w = w
	if c.Fork {
		c.send("clone", nil, func(r reply, t *talk.Turn) {
			if !r.Success {
				t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassSession, Error: "fork the session: " + r.Error})
				return
			}
			c.send("get_state", nil, c.begin)
		})
		return
	}
	c.send("get_state", nil, c.begin)
}

func (c *rpcMode) begin(r reply, t *talk.Turn) {
	var state struct {
		ID    string `json:"sessionId"`
		File  string `json:"sessionFile"`
		Name  string `json:"sessionName"`
		Level string `json:"thinkingLevel"`
		Model struct {
			ID string `json:"id"`
		} `json:"model"`
	}
	_ = talk.Decode(r.Data, &state)
	detail, err := json.Marshal(map[string]string{"session_file": state.File, "thinking_level": state.Level})
	if err != nil {
		detail = nil
	}
	t.Start(agent.Started{Resume: state.ID, Resumed: c.Resume != "" && !c.Fork, Title: state.Name, Model: state.Model.ID, Transport: "rpc", Detail: detail})
	c.ready = true
	if p := c.queued; p != nil {
		c.queued = nil
		c.say(*p)
	}
}

func (c *rpcMode) Prompt(p spool.Prompt, _ *talk.Turn) error {
	c.end, c.bad, c.lines.say, c.aborted = nil, nil, "", false
	if !c.ready {
		c.queued = &p
		return nil
	}
	c.say(p)
	return nil
}

func (c *rpcMode) say(p spool.Prompt) {
	c.working = true
	prompts := append(c.unsaid, p)
	c.unsaid = nil
	c.send("prompt", together(prompts...), func(r reply, t *talk.Turn) {
		if !r.Success {
			c.working = false
			t.Finish(talk.Result{Outcome: spool.TurnError, Error: cmp.Or(r.Error, "pi did not take the prompt")})
		}
	})
}

// together is what prompts say and show together.
func together(prompts ...spool.Prompt) map[string]any {
	var texts []string
	var images []map[string]any
	for _, p := range prompts {
		texts = append(texts, p.Text)
		for _, image := range p.Images {
			images = append(images, map[string]any{"type": "image", "mimeType": image.MIME, "data": image.Bytes})
		}
	}
	m := map[string]any{"message": strings.Join(texts, "\n\n")}
	if images != nil {
		m["images"] = images
	}
	return m
}

func (c *rpcMode) Interrupt(t *talk.Turn) error {
	if c.queued != nil { // it never began
		c.queued = nil
		t.Finish(talk.Result{Outcome: spool.TurnInterrupted, Class: agent.ClassStopped, Error: "interrupted before it began"})
		return nil
	}
	c.aborted = true
	c.send("abort", nil, func(reply, *talk.Turn) {})
	return nil
}

func (c *rpcMode) Steer(p spool.Prompt, _ *talk.Turn) error {
	if !c.working {
		return spool.ErrUnsupported
	}
	c.send("steer", together(p), func(r reply, t *talk.Turn) {
		if !r.Success {
			c.unsaid = append(c.unsaid, p)
			t.Notice("warning", talk.NoticeNotSteered, "pi did not take what was said in between, so it goes with the next prompt: "+r.Error)
		}
	})
	return nil
}

func (c *rpcMode) Line(b []byte, t *talk.Turn) {
	var l struct {
		Type string `json:"type"`
	}
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
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
		t.Put(spool.KindNotice, spool.Notice{Level: "warning", Code: talk.NoticeWarning, Text: "an extension of pi failed", Data: json.RawMessage(b)}, nil)
		return
	case "agent_settled":
		c.working = false
	}
	had := t.Result() != nil
	c.lines.Line(b, t)
	if !had && t.Result() != nil {
		c.working = false
		clear(c.asks)
		// pi tells of an abort as of any other failure.
		if c.aborted && t.Result().Outcome != spool.TurnOK {
			t.Result().Outcome, t.Result().Class = spool.TurnInterrupted, agent.ClassStopped
		}
	}
}

func (c *rpcMode) reply(b []byte, t *talk.Turn) {
	var r reply
	_ = talk.Decode(b, &r)
	then, ok := c.replies[r.ID]
	delete(c.replies, r.ID)
	switch {
	case ok:
		then(r, t)
	case !r.Success:
		t.Notice("warning", talk.NoticeWarning, "pi refused "+cmp.Or(r.Command, "a command")+": "+r.Error)
	}
}

func (c *rpcMode) Ended(x talk.Exit, t *talk.Turn) { c.lines.Ended(x, t) }

// dialog takes what an extension shows or asks.
func (c *rpcMode) dialog(b []byte, t *talk.Turn) {
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
	_ = talk.Decode(b, &r)
	ask := pendingAsk{method: r.Method}
	switch r.Method {
	case "confirm":
		ask.options = []spool.AskOption{{ID: agent.Allow, Label: "yes", Kind: talk.AllowOnce}, {ID: agent.Deny, Label: "no", Kind: talk.RejectOnce}}
		c.asks[r.ID] = ask
		t.Ask(r.ID, talk.ApprovalAsk(agent.Approval{Kind: agent.ActionOther, Tool: "extension", Reason: r.Message}, cmp.Or(r.Title, r.Message), ask.options))
	case "select", "input", "editor":
		q := agent.Question{ID: "answer", Text: cmp.Or(r.Title, r.Message, r.Hint)}
		for _, o := range r.Options {
			q.Options = append(q.Options, spool.AskOption{ID: o, Label: o})
		}
		ask.questions = []agent.Question{q}
		c.asks[r.ID] = ask
		t.Ask(r.ID, talk.QuestionAsk(agent.Questions{Questions: ask.questions}, ""))
	case "notify":
		t.Notice(cmp.Or(r.Level, "info"), talk.NoticeWarning, r.Message)
	case "setStatus", "setWidget", "setTitle", "set_editor_text": // for a screen
	default:
		t.Unknown("dialog "+r.Method, b)
		c.write(map[string]any{"type": "extension_ui_response", "id": r.ID, "cancelled": true})
	}
}

func (c *rpcMode) Answer(key string, d agent.Decision, t *talk.Turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	delete(c.asks, key)
	m := map[string]any{"type": "extension_ui_response", "id": key}
	switch {
	case ask.method == "confirm":
		m["confirmed"] = talk.Understood(ask.options, d, t).Choice == agent.Allow || d.Choice == agent.AllowSession
	case talk.Declined(d):
		m["cancelled"] = true
	default:
		m["value"] = talk.Answers(ask.questions, d)["answer"]
	}
	c.write(m)
	return nil
}
