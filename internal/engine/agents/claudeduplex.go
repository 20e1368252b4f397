package agents

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// claudeDuplex is claude with lines both ways: prompts go in as they come,
// permissions are asked for, and a turn can be interrupted.
type claudeDuplex struct {
	setup
	claudeLines
	w     wire
	last  int // number of our last control request
	ready bool
	// queued waits until claude is ready.
	queued *spool.Prompt
	asks   map[string]claudeAsk
}

// claudeAsk is a permission that claude waits for.
type claudeAsk struct {
	tool        string
	input       json.RawMessage
	suggestions json.RawMessage
	options     []spool.AskOption
	questions   []Question
}

func newClaudeDuplex(s setup) (conversation, error) {
	return &claudeDuplex{setup: s, claudeLines: claudeLines{cwd: s.cwd}, asks: make(map[string]claudeAsk)}, nil
}

func (c *claudeDuplex) command() (command, error) {
	argv := []string{first(c.config.Program, Claude), "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--permission-prompt-tool", "stdio"}
	argv = append(argv, c.claudeOptions(c.config.AllowedTools)...)
	return command{argv: append(argv, c.config.Extra...), env: c.claudeEnv(), open: true}, nil
}

// write sends one line.
func (c *claudeDuplex) write(v any) {
	b, err := json.Marshal(v)
	if err != nil { // raw values of claude's own decoded before
		return
	}
	c.w.write(append(b, '\n'))
}

// control sends a control request and returns its id.
func (c *claudeDuplex) control(subtype string) string {
	c.last++
	id := fmt.Sprintf("spool-%d", c.last)
	c.write(map[string]any{"type": "control_request", "request_id": id, "request": map[string]any{"subtype": subtype}})
	return id
}

func (c *claudeDuplex) opened(w wire, _ *turn) {
	c.w = w
	c.control("initialize")
}

func (c *claudeDuplex) prompt(p spool.Prompt, _ *turn) error {
	if !c.ready {
		c.queued = &p
		return nil
	}
	c.say(p)
	return nil
}

func (c *claudeDuplex) say(p spool.Prompt) {
	c.write(map[string]any{"type": "user", "message": map[string]any{
		"role": "user", "content": []map[string]string{{"type": "text", "text": p.Text}}}})
}

func (c *claudeDuplex) interrupt(t *turn) error {
	if c.queued != nil { // it never began
		c.queued = nil
		t.finish(result{outcome: spool.TurnInterrupted, class: agent.ClassStopped, err: "interrupted before it began"})
		return nil
	}
	c.control("interrupt")
	return nil
}

// steer is not possible: what is said in between waits for the next turn.
func (c *claudeDuplex) steer(spool.Prompt, *turn) error { return spool.ErrUnsupported }

// claudeControl is a line of the control protocol.
type claudeControl struct {
	Type     string          `json:"type"`
	ID       string          `json:"request_id"`
	Request  json.RawMessage `json:"request"`
	Response struct {
		ID    string `json:"request_id"`
		Error string `json:"error"`
	} `json:"response"`
}

func (c *claudeDuplex) line(b []byte, t *turn) {
	var l claudeControl
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	switch l.Type {
	case "control_response":
		if l.Response.Error != "" {
			t.notice("warning", NoticeWarning, "claude refused a request: "+l.Response.Error)
		}
		c.begin()
	case "control_request":
		c.request(&l, b, t)
	case "control_cancel_request":
		if _, open := c.asks[l.ID]; open {
			delete(c.asks, l.ID)
			t.withdraw(l.ID)
		}
	case "result":
		clear(c.asks)
		c.claudeLines.line(b, t)
	default:
		c.claudeLines.line(b, t)
	}
}

// begin says what waited for claude to be ready. Whatever it answered, it
// reads now.
func (c *claudeDuplex) begin() {
	c.ready = true
	if p := c.queued; p != nil {
		c.queued = nil
		c.say(*p)
	}
}

func (c *claudeDuplex) ended(x exit, t *turn) {
	c.claudeLines.ended(x, t)
}

// request takes a request of claude's.
func (c *claudeDuplex) request(l *claudeControl, line []byte, t *turn) {
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
	_ = lenient(l.Request, &r)
	if r.Subtype != "can_use_tool" {
		t.unknown("request "+r.Subtype, line)
		c.write(map[string]any{"type": "control_response", "response": map[string]any{
			"subtype": "error", "request_id": l.ID, "error": "spool does not do " + r.Subtype}})
		return
	}
	ask := claudeAsk{tool: r.Tool, input: r.Input}
	if len(list(r.Suggestions)) > 0 {
		ask.suggestions = r.Suggestions
	}
	var a spool.Ask
	if strings.EqualFold(r.Tool, "AskUserQuestion") {
		ask.questions = claudeQuestions(r.Input)
		a = questionAsk(Questions{Action: r.Use, Questions: ask.questions}, "")
	} else {
		ask.options = claudeOptions(ask.suggestions != nil)
		what, title := toolApproval(r.Tool, r.Input, c.claudeLines.cwd)
		what.Action, what.Reason = r.Use, r.Reason
		if r.Blocked != "" {
			what.Paths = append(what.Paths, r.Blocked)
		}
		if strings.EqualFold(r.Tool, "ExitPlanMode") {
			what.Kind, title = ApprovePlan, "begin with the plan"
		}
		a = approvalAsk(what, first(title, r.Description), ask.options)
	}
	c.asks[l.ID] = ask
	t.ask(l.ID, a)
}

// claudeOptions are the answers to a permission.
func claudeOptions(session bool) []spool.AskOption {
	o := []spool.AskOption{{ID: agent.Allow, Label: "allow", Kind: allowOnce}}
	if session {
		o = append(o, spool.AskOption{ID: agent.AllowSession, Label: "allow for this session", Kind: allowAlways})
	}
	return append(o, spool.AskOption{ID: agent.Deny, Label: "deny", Kind: rejectOnce},
		spool.AskOption{ID: agent.DenyStop, Label: "deny and stop", Kind: rejectOnce})
}

// claudeQuestions reads the input of AskUserQuestion. A question is known by
// its text.
func claudeQuestions(input json.RawMessage) []Question {
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
	_ = lenient(input, &in)
	questions := []Question{}
	for _, q := range in.Questions {
		one := Question{ID: q.Question, Header: q.Header, Text: q.Question, Multiple: q.Multiple}
		for _, o := range q.Options {
			one.Options = append(one.Options, spool.AskOption{ID: o.Label, Label: o.Label})
		}
		questions = append(questions, one)
	}
	return questions
}

func (c *claudeDuplex) answer(key string, d agent.Decision, t *turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	delete(c.asks, key)
	var response map[string]any
	if ask.questions != nil {
		response = ask.told(d)
	} else {
		response = ask.allowed(understood(ask.options, d, t))
	}
	c.write(map[string]any{"type": "control_response", "response": map[string]any{
		"subtype": "success", "request_id": key, "response": response}})
	return nil
}

// allowed is claude's word for a decision. It always wants the input back,
// which somebody may have changed.
func (ask *claudeAsk) allowed(d agent.Decision) map[string]any {
	switch d.Choice {
	case agent.Allow, agent.AllowSession:
		input := ask.input
		if len(d.Input) > 0 {
			input = d.Input
		}
		if null(input) {
			input = json.RawMessage("{}")
		}
		r := map[string]any{"behavior": "allow", "updatedInput": input}
		if d.Choice == agent.AllowSession && ask.suggestions != nil {
			r["updatedPermissions"] = ask.suggestions
		}
		return r
	}
	r := map[string]any{"behavior": "deny", "message": first(d.Message, "The user does not allow this.")}
	if d.Choice == agent.DenyStop {
		r["interrupt"] = true
	}
	return r
}

// told gives the answers as claude wants them: in the input of its question.
func (ask *claudeAsk) told(d agent.Decision) map[string]any {
	if declined(d) {
		return ask.allowed(agent.Decision{Choice: first(d.Choice, agent.Deny), Message: first(d.Message, "The user does not want to answer.")})
	}
	var input map[string]any
	if lenient(ask.input, &input) != nil || input == nil {
		input = make(map[string]any)
	}
	input["answers"] = answersTo(ask.questions, d)
	return map[string]any{"behavior": "allow", "updatedInput": input}
}

// toolApproval says what a call of one of the tools that agents have in
// common would do.
func toolApproval(tool string, input json.RawMessage, cwd string) (Approval, string) {
	a := describe(tool, input, cwd)
	what := Approval{Kind: a.Kind, Tool: tool, Cwd: cwd, Input: a.Input}
	var in struct {
		Command  json.RawMessage `json:"command"`
		FilePath string          `json:"file_path"`
		Notebook string          `json:"notebook_path"`
		Path     string          `json:"path"`
	}
	_ = lenient(input, &in)
	if a.Kind == agent.ActionCommand {
		what.Command = commandText(in.Command)
	}
	for _, p := range []string{in.FilePath, in.Notebook, in.Path} {
		if p != "" {
			what.Paths = append(what.Paths, p)
		}
	}
	return what, a.Title
}
