package claude

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// duplex is claude with lines both ways: prompts go in as they come,
// permissions are asked for, and a turn can be interrupted.
type duplex struct {
	talk.Setup
	lines
	w     talk.Wire
	last  int // number of our last control request
	ready bool
	// queued waits until claude is ready.
	queued *spool.Prompt
	asks   map[string]pendingAsk
}

// pendingAsk is a permission that claude waits for.
type pendingAsk struct {
	tool        string
	input       json.RawMessage
	suggestions json.RawMessage
	options     []spool.AskOption
	questions   []agent.Question
}

func newDuplex(s talk.Setup) (talk.Conversation, error) {
	return &duplex{Setup: s, lines: lines{cwd: s.Cwd}, asks: make(map[string]pendingAsk)}, nil
}

func (c *duplex) Command() (talk.Command, error) {
	argv := []string{cmp.Or(c.Config.Program, agent.Claude), "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--permission-prompt-tool", "stdio"}
	argv = append(argv, sharedArgs(c.Setup, c.Config.AllowedTools)...)
	return talk.Command{Argv: append(argv, c.Config.Extra...), Env: environ(c.Setup), Open: true}, nil
}

// write sends one line.
func (c *duplex) write(v any) {
	b, err := json.Marshal(v)
	if err != nil { // raw values of claude's own decoded before
		return
	}
	c.w.Write(append(b, '\n'))
}

// control sends a control request and returns its id.
func (c *duplex) control(subtype string) string {
	c.last++
	id := fmt.Sprintf("spool-%d", c.last)
	c.write(map[string]any{"type": "control_request", "request_id": id, "request": map[string]any{"subtype": subtype}})
	return id
}

func (c *duplex) Opened(w talk.Wire, _ *talk.Turn) {
	c.w = w
	c.control("initialize")
}

func (c *duplex) Prompt(p spool.Prompt, _ *talk.Turn) error {
	if !c.ready {
		c.queued = &p
		return nil
	}
	c.say(p)
	return nil
}

func (c *duplex) say(p spool.Prompt) {
	var content []map[string]any
	for _, image := range p.Images {
		content = append(content, map[string]any{"type": "image", "source": map[string]any{"type": "base64", "media_type": image.MIME, "data": image.Bytes}})
	}
	if p.Text != "" {
		content = append(content, map[string]any{"type": "text", "text": p.Text})
	}
	c.write(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": content}})
}

func (c *duplex) Interrupt(t *talk.Turn) error {
	if c.queued != nil { // it never began
		c.queued = nil
		t.Finish(talk.Result{Outcome: spool.TurnInterrupted, Class: agent.ClassStopped, Error: "interrupted before it began"})
		return nil
	}
	c.control("interrupt")
	return nil
}

// Steer is not possible: what is said in between waits for the next turn.
func (c *duplex) Steer(spool.Prompt, *talk.Turn) error { return spool.ErrUnsupported }

// controlLine is a line of the control protocol.
type controlLine struct {
	Type     string          `json:"type"`
	ID       string          `json:"request_id"`
	Request  json.RawMessage `json:"request"`
	Response struct {
		ID    string `json:"request_id"`
		Error string `json:"error"`
	} `json:"response"`
}

func (c *duplex) Line(b []byte, t *talk.Turn) {
	var l controlLine
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
		return
	}
	switch l.Type {
	case "control_response":
		if l.Response.Error != "" {
			t.Notice("warning", talk.NoticeWarning, "claude refused a request: "+l.Response.Error)
		}
		c.begin()
	case "control_request":
		c.request(&l, b, t)
	case "control_cancel_request":
		if _, open := c.asks[l.ID]; open {
			delete(c.asks, l.ID)
			t.Withdraw(l.ID)
		}
	case "result":
		clear(c.asks)
		c.lines.Line(b, t)
	default:
		c.lines.Line(b, t)
	}
}

// begin says what waited for claude to be ready. Whatever it answered, it
// reads now.
func (c *duplex) begin() {
	c.ready = true
	if p := c.queued; p != nil {
		c.queued = nil
		c.say(*p)
	}
}

func (c *duplex) Ended(x talk.Exit, t *talk.Turn) {
	c.lines.Ended(x, t)
}

// request takes a request of claude's.
func (c *duplex) request(l *controlLine, line []byte, t *talk.Turn) {
	var r struct {
		Subtype     string          `json:"subtype"`
		Tool        string          `json:"tool_name"`
		Input       json.RawMessage `json:"input"`
		Description string          `json:"description"`
		Suggestions json.RawMessage `json:"permission_suggestions"`
		Blocked     string          `json:"blocked_path"`
		Reason      string          `json:"decision_reason"`
		Use         string          `json:"tool_use_id"`
	}
	_ = talk.Decode(l.Request, &r)
	if r.Subtype != "can_use_tool" {
		t.Unknown("request "+r.Subtype, line)
		c.write(map[string]any{"type": "control_response", "response": map[string]any{
			"subtype": "error", "request_id": l.ID, "error": "spool does not do " + r.Subtype}})
		return
	}
	ask := pendingAsk{tool: r.Tool, input: r.Input}
	if len(talk.Elements(r.Suggestions)) > 0 {
		ask.suggestions = r.Suggestions
	}
	var a spool.Ask
	if strings.EqualFold(r.Tool, "AskUserQuestion") {
		ask.questions = questionsOf(r.Input)
		a = talk.QuestionAsk(agent.Questions{Action: r.Use, Questions: ask.questions}, "")
	} else {
		ask.options = askOptions(ask.suggestions != nil)
		what, title := toolApproval(r.Tool, r.Input, c.cwd)
		what.Action, what.Reason = r.Use, r.Reason
		if r.Blocked != "" {
			what.Paths = append(what.Paths, r.Blocked)
		}
		if strings.EqualFold(r.Tool, "ExitPlanMode") {
			what.Kind, title = agent.ApprovePlan, "begin with the plan"
		}
		a = talk.ApprovalAsk(what, cmp.Or(title, r.Description), ask.options)
	}
	c.asks[l.ID] = ask
	t.Ask(l.ID, a)
}

// askOptions are the answers to a permission.
func askOptions(session bool) []spool.AskOption {
	o := []spool.AskOption{{ID: agent.Allow, Label: "allow", Kind: talk.AllowOnce}}
	if session {
		o = append(o, spool.AskOption{ID: agent.AllowSession, Label: "allow for this session", Kind: talk.AllowAlways})
	}
	return append(o, spool.AskOption{ID: agent.Deny, Label: "deny", Kind: talk.RejectOnce},
		spool.AskOption{ID: agent.DenyStop, Label: "deny and stop", Kind: talk.RejectOnce})
}

// questionsOf reads the input of AskUserQuestion. A question is known by
// its text.
func questionsOf(input json.RawMessage) []agent.Question {
	var in struct {
		Questions []struct {
			Question string `json:"question"`
			Header   string `json:"header"`
			Multiple bool   `json:"multiSelect"`
			Options  []struct {
				Label string `json:"label"`
			} `json:"options"`
		} `json:"questions"`
	}
	_ = talk.Decode(input, &in)
	questions := []agent.Question{}
	for _, q := range in.Questions {
		one := agent.Question{ID: q.Question, Header: q.Header, Text: q.Question, Multiple: q.Multiple}
		for _, o := range q.Options {
			one.Options = append(one.Options, spool.AskOption{ID: o.Label, Label: o.Label})
		}
		questions = append(questions, one)
	}
	return questions
}

func (c *duplex) Answer(key string, d agent.Decision, t *talk.Turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	delete(c.asks, key)
	var response map[string]any
	if ask.questions != nil {
		response = ask.told(d)
	} else {
		response = ask.allowed(talk.Understood(ask.options, d, t))
	}
	c.write(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": key, "response": response}})
	return nil
}

// allowed is claude's word for a decision. It always wants the input back,
// which the decision may have changed.
func (ask *pendingAsk) allowed(d agent.Decision) map[string]any {
	switch d.Choice {
	case agent.Allow, agent.AllowSession:
		input := ask.input
		if len(d.Input) > 0 {
			input = d.Input
		}
		if talk.IsNull(input) {
			input = json.RawMessage("{}")
		}
		r := map[string]any{"behavior": "allow", "updatedInput": input}
		if d.Choice == agent.AllowSession && ask.suggestions != nil {
			r["updatedPermissions"] = ask.suggestions
		}
		return r
	}
	r := map[string]any{"behavior": "deny", "message": cmp.Or(d.Message, "The user does not allow this.")}
	if d.Choice == agent.DenyStop {
		r["interrupt"] = true
	}
	return r
}

// told gives the answers as claude wants them: in the input of its question.
func (ask *pendingAsk) told(d agent.Decision) map[string]any {
	if talk.Declined(d) {
		return ask.allowed(agent.Decision{Choice: cmp.Or(d.Choice, agent.Deny), Message: cmp.Or(d.Message, "The user does not want to answer.")})
	}
	var input map[string]any
	if talk.Decode(ask.input, &input) != nil || input == nil {
		input = make(map[string]any)
	}
	input["answers"] = talk.Answers(ask.questions, d)
	return map[string]any{"behavior": "allow", "updatedInput": input}
}

// toolApproval says what a call of one of the tools that agents have in
// common would do.
func toolApproval(tool string, input json.RawMessage, cwd string) (agent.Approval, string) {
	a := talk.Describe(tool, input, cwd)
	what := agent.Approval{Kind: a.Kind, Tool: tool, Cwd: cwd, Input: a.Input, Changes: a.Changes}
	var in struct {
		Command  json.RawMessage `json:"command"`
		FilePath string          `json:"file_path"`
		Notebook string          `json:"notebook_path"`
		Path     string          `json:"path"`
	}
	_ = talk.Decode(input, &in)
	if a.Kind == agent.ActionCommand {
		what.Command = talk.CommandText(in.Command)
	}
	for _, p := range []string{in.FilePath, in.Notebook, in.Path} {
		if p != "" {
			what.Paths = append(what.Paths, p)
		}
	}
	return what, a.Title
}
