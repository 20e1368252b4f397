package agents

import (
	"encoding/json"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// openCodeRunner is opencode. It tells of a tool when that has ended, and
// leaves the tool's process running whatever signal it gets.
func openCodeRunner() *runner {
	return &runner{
		name: OpenCode, program: "opencode", install: "npm install -g opencode-ai",
		signal: syscall.SIGTERM, quiet: true,
		exec: func(s setup) (conversation, error) {
			return &openCodeExec{setup: s, openCodeLines: openCodeLines{cwd: s.cwd}}, nil
		},
	}
}

// openCodeExec is opencode run.
type openCodeExec struct {
	oneShot
	setup
	openCodeLines
}

func (c *openCodeExec) command() (command, error) {
	argv := []string{first(c.config.Program, OpenCode), "run", "--format", "json"}
	if c.resume != "" {
		argv = append(argv, "--session", c.resume)
		if c.fork {
			argv = append(argv, "--fork")
		}
	}
	if c.config.Model != "" {
		argv = append(argv, "--model", c.config.Model)
	}
	if c.config.Effort != "" {
		argv = append(argv, "--variant", c.config.Effort)
	}
	if c.config.Profile != "" {
		argv = append(argv, "--agent", c.config.Profile)
	}
	if c.config.SkipPermissions {
		argv = append(argv, "--auto")
	}
	argv = append(argv, c.config.Extra...)
	return saying(argv, c.opening.Text, nil), nil
}

// openCodeLines translates the lines of opencode run --format json.
type openCodeLines struct {
	cwd      string
	message  string // the one that speaks
	text     string // what it said until now
	finished bool   // a step was
	refused  string // the last thing that was not allowed
	again    int    // steps that began since anything else was said
}

// openCodePart is what most lines are about.
type openCodePart struct {
	ID      string `json:"id"`
	Message string `json:"messageID"`
	Type    string `json:"type"`
	Text    string `json:"text"`
	Tool    string `json:"tool"`
	Call    string `json:"callID"`
	State   struct {
		Status   string          `json:"status"`
		Input    json.RawMessage `json:"input"`
		Output   string          `json:"output"`
		Error    string          `json:"error"`
		Title    string          `json:"title"`
		Metadata struct {
			Exit *int `json:"exit"`
		} `json:"metadata"`
	} `json:"state"`
	Reason string  `json:"reason"`
	Cost   float64 `json:"cost"`
	Tokens *struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
}

func (c *openCodeLines) line(b []byte, t *turn) {
	var l struct {
		Type    string          `json:"type"`
		Session string          `json:"sessionID"`
		Part    openCodePart    `json:"part"`
		Error   json.RawMessage `json:"error"`
	}
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	t.session(l.Session) // any line may be the first
	p := &l.Part
	switch l.Type {
	case "step_start":
		t.step()
		// A step that begins again and again is how a request that fails
		// shows: nothing else does.
		if c.again++; c.again > 1 {
			t.stuck = true
			t.retry(agent.Retry{Attempt: c.again - 1, Reason: "the step began again without a word"})
		}
		return
	case "text":
		c.say(p, t)
	case "reasoning":
		t.reasoning(agent.Reasoning{ID: p.ID, Text: p.Text})
	case "tool_use":
		c.tool(p, t)
	case "step_finish":
		c.step(p, t)
	case "error":
		text := openCodeError(l.Error)
		r := result{outcome: spool.TurnError, err: text, answer: c.text}
		var e struct {
			Data struct {
				Status int `json:"statusCode"`
			} `json:"data"`
		}
		if lenient(l.Error, &e) == nil {
			r.class = classify(text, e.Data.Status)
		}
		t.finish(r)
	default:
		t.unknown(l.Type, b)
	}
	c.again = 0
}

// say keeps the text of the message that speaks: the answer is what the last
// one said, not everything.
func (c *openCodeLines) say(p *openCodePart, t *turn) {
	if p.Message != c.message {
		c.message, c.text = p.Message, ""
	}
	if c.text != "" {
		c.text += "\n"
	}
	c.text += p.Text
	t.message(agent.Message{ID: p.ID, Text: p.Text})
}

func (c *openCodeLines) tool(p *openCodePart, t *turn) {
	a := describe(p.Tool, p.State.Input, c.cwd)
	a.ID, a.Status = first(p.Call, p.ID), p.State.Status
	switch p.State.Status {
	case "completed":
		a.Phase, a.Output, a.ExitCode = agent.ActionCompleted, p.State.Output, p.State.Metadata.Exit
		a.OK = is(a.ExitCode == nil || *a.ExitCode == 0)
	case "error":
		a.Phase, a.OK, a.Message = agent.ActionCompleted, no(), p.State.Error
		if refusal(p.State.Error) {
			c.refused = p.State.Error
		}
	default:
		a.Phase = agent.ActionStarted
	}
	t.action(a)
	if items := todos(p.State.Input); strings.EqualFold(p.Tool, "todowrite") && items != nil {
		t.plan(agent.Plan{ID: a.ID, Items: items})
	}
}

// refusal recognises the error of a tool that was not allowed.
func refusal(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "permission") || strings.Contains(text, "rejected")
}

func (c *openCodeLines) step(p *openCodePart, t *turn) {
	c.finished = true
	if u := p.Tokens; u != nil {
		t.add(agent.Spend{Input: u.Input + u.Cache.Read + u.Cache.Write, CacheRead: u.Cache.Read, CacheWrite: u.Cache.Write,
			Output: u.Output + u.Reasoning, Reasoning: u.Reasoning, CostUSD: p.Cost})
	}
	answer := c.text
	if p.Message != c.message {
		answer = ""
	}
	switch p.Reason {
	case "stop":
		t.finish(result{outcome: spool.TurnOK, answer: answer})
	case "length":
		t.finish(result{outcome: spool.TurnError, answer: answer, class: agent.ClassContext, err: "the model reached its output token limit"})
	case "content-filter":
		t.finish(result{outcome: spool.TurnRefused, answer: answer, err: "the model's content filter ended the answer"})
	}
}

// openCodeError finds the message in the forms an error comes in.
func openCodeError(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil && s != "" {
		return s
	}
	var e struct {
		Name    string `json:"name"`
		Message string `json:"message"`
		Data    struct {
			Message string `json:"message"`
		} `json:"data"`
	}
	_ = lenient(v, &e)
	return first(e.Data.Message, e.Message, e.Name, "opencode error")
}

func (c *openCodeLines) ended(x exit, t *turn) {
	switch {
	case x.signal != "" || x.code != 0:
		t.finish(failedExit("opencode", x, c.text))
	case c.refused != "":
		t.finish(result{outcome: spool.TurnRefused, class: agent.ClassPermission, answer: c.text, err: c.refused})
	case !t.run.started:
		t.finish(result{outcome: spool.TurnError, class: agent.ClassProtocol, answer: c.text,
			err: "opencode finished but no session_id was captured"})
	case c.finished:
		t.finish(result{outcome: spool.TurnOK, answer: c.text})
	default:
		t.finish(result{outcome: spool.TurnError, class: agent.ClassProtocol, answer: c.text,
			err: "opencode finished without a result event"})
	}
}
