// Package opencode talks to opencode run.
package opencode

import (
	"cmp"
	"encoding/json"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// Agent is opencode. It tells of a tool when that has ended, and
// leaves the tool's process running whatever signal it gets.
func Agent() *talk.Agent {
	return &talk.Agent{
		Name: agent.OpenCode, Program: "opencode", Install: "npm install -g opencode-ai",
		Signal: syscall.SIGTERM, Quiet: true,
		State: state,
		Exec: func(s talk.Setup) (talk.Conversation, error) {
			return &execMode{Setup: s, lines: lines{cwd: s.Cwd}}, nil
		},
	}
}

// state is where opencode keeps its configuration and sessions.
func state(getenv func(string) string) []string {
	var list []string
	for _, d := range [][2]string{{"XDG_CONFIG_HOME", ".config"}, {"XDG_DATA_HOME", ".local/share"}, {"XDG_STATE_HOME", ".local/state"}, {"XDG_CACHE_HOME", ".cache"}} {
		if dir := talk.Dir(getenv, d[0], d[1]); dir != "" {
			list = append(list, filepath.Join(dir, "opencode"))
		}
	}
	return list
}

// execMode is opencode run.
type execMode struct {
	talk.OneShot
	talk.Setup
	lines
}

func (c *execMode) Command() (talk.Command, error) {
	argv := []string{cmp.Or(c.Config.Program, agent.OpenCode), "run", "--format", "json"}
	if c.Resume != "" {
		argv = append(argv, "--session", c.Resume)
		if c.Fork {
			argv = append(argv, "--fork")
		}
	}
	if c.Config.Model != "" {
		argv = append(argv, "--model", c.Config.Model)
	}
	if c.Config.Effort != "" {
		argv = append(argv, "--variant", c.Config.Effort)
	}
	if c.Config.Profile != "" {
		argv = append(argv, "--agent", c.Config.Profile)
	}
	if c.Config.SkipPermissions {
		argv = append(argv, "--auto")
	}
	argv = append(argv, c.Config.Extra...)
	return talk.WithPrompt(argv, c.Opening.Text, nil), nil
}

// lines translates the lines of opencode run --format json.
type lines struct {
	cwd      string
	message  string // the one that speaks
	text     string // what it said until now
	finished bool   // a step was
	refused  string // the last thing that was not allowed
	again    int    // steps that began since anything else was said
}

// part is what most lines are about.
type part struct {
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
			Exit   *int   `json:"exit"`
			Diff   string `json:"diff"`
			Exists *bool  `json:"exists"` // the file, before it was written
		} `json:"metadata"`
		Time struct {
			Start int64 `json:"start"`
			End   int64 `json:"end"`
		} `json:"time"`
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

func (c *lines) Line(b []byte, t *talk.Turn) {
	var l struct {
		Type    string          `json:"type"`
		Session string          `json:"sessionID"`
		Part    part            `json:"part"`
		Error   json.RawMessage `json:"error"`
	}
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
		return
	}
	t.Session(l.Session) // any line may be the first
	p := &l.Part
	switch l.Type {
	case "step_start":
		t.Step()
		// A step that begins again and again is how a request that fails
		// shows: nothing else does.
		if c.again++; c.again > 1 {
			t.NoProgress()
			t.Retry(agent.Retry{Attempt: c.again - 1, Reason: "the step began again without a word"})
		}
		return
	case "text":
		c.say(p, t)
	case "reasoning":
		t.Reasoning(agent.Reasoning{ID: p.ID, Text: p.Text})
	case "tool_use":
		c.tool(p, t)
	case "step_finish":
		c.step(p, t)
	case "error":
		text := errorText(l.Error)
		r := talk.Result{Outcome: spool.TurnError, Error: text, Answer: c.text}
		var e struct {
			Data struct {
				Status int `json:"statusCode"`
			} `json:"data"`
		}
		if talk.Decode(l.Error, &e) == nil {
			r.Class = talk.Classify(text, e.Data.Status)
		}
		t.Finish(r)
	default:
		t.Unknown(l.Type, b)
	}
	c.again = 0
}

// say keeps the text of the message that speaks: the answer is what the last
// one said, not everything.
func (c *lines) say(p *part, t *talk.Turn) {
	if p.Message != c.message {
		c.message, c.text = p.Message, ""
	}
	if c.text != "" {
		c.text += "\n"
	}
	c.text += p.Text
	t.Message(agent.Message{ID: p.ID, Text: p.Text})
}

func (c *lines) tool(p *part, t *talk.Turn) {
	a := talk.Describe(p.Tool, p.State.Input, c.cwd)
	a.ID, a.Status = cmp.Or(p.Call, p.ID), p.State.Status
	switch p.State.Status {
	case "completed":
		a.Phase, a.Output, a.ExitCode = agent.ActionCompleted, p.State.Output, p.State.Metadata.Exit
		a.OK = new(a.ExitCode == nil || *a.ExitCode == 0)
		if m := p.State.Metadata; len(a.Changes) == 1 {
			kind := ""
			if m.Exists != nil && !*m.Exists {
				kind = "add"
			}
			a.Changes = talk.Changed(a.Changes[0], kind, talk.PatchHunks(m.Diff))
		}
	case "error":
		a.Phase, a.OK, a.Message = agent.ActionCompleted, new(false), p.State.Error
		if refusal(p.State.Error) {
			c.refused = p.State.Error
		}
	default:
		a.Phase = agent.ActionStarted
	}
	if took := p.State.Time.End - p.State.Time.Start; a.Phase == agent.ActionCompleted && p.State.Time.Start > 0 && took > 0 {
		a.DurationMs = took
	}
	t.Action(a)
	if items := talk.Todos(p.State.Input); strings.EqualFold(p.Tool, "todowrite") && items != nil {
		t.Plan(agent.Plan{ID: a.ID, Items: items})
	}
}

// refusal recognises the error of a tool that was not allowed.
func refusal(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "permission") || strings.Contains(text, "rejected")
}

func (c *lines) step(p *part, t *talk.Turn) {
	c.finished = true
	if u := p.Tokens; u != nil {
		t.Add(agent.Spend{Input: u.Input + u.Cache.Read + u.Cache.Write, CacheRead: u.Cache.Read, CacheWrite: u.Cache.Write,
			Output: u.Output + u.Reasoning, Reasoning: u.Reasoning, CostUSD: p.Cost})
	}
	answer := c.text
	if p.Message != c.message {
		answer = ""
	}
	switch p.Reason {
	case "stop":
		t.Finish(talk.Result{Outcome: spool.TurnOK, Answer: answer})
	case "length":
		t.Finish(talk.Result{Outcome: spool.TurnError, Answer: answer, Class: agent.ClassContext, Error: "the model reached its output token limit"})
	case "content-filter":
		t.Finish(talk.Result{Outcome: spool.TurnRefused, Answer: answer, Error: "the model's content filter ended the answer"})
	}
}

// errorText finds the message in the forms an error comes in.
func errorText(v json.RawMessage) string {
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
	_ = talk.Decode(v, &e)
	return cmp.Or(e.Data.Message, e.Message, e.Name, "opencode error")
}

func (c *lines) Ended(x talk.Exit, t *talk.Turn) {
	switch {
	case x.Signal != "" || x.Code != 0:
		t.Finish(talk.FailedExit("opencode", x, c.text))
	case c.refused != "":
		t.Finish(talk.Result{Outcome: spool.TurnRefused, Class: agent.ClassPermission, Answer: c.text, Error: c.refused})
	case !t.SessionKnown():
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassProtocol, Answer: c.text,
			Error: "opencode finished but no session_id was captured"})
	case c.finished:
		t.Finish(talk.Result{Outcome: spool.TurnOK, Answer: c.text})
	default:
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassProtocol, Answer: c.text,
			Error: "opencode finished without a result event"})
	}
}
