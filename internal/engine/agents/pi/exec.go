// Package pi talks to pi: in json mode, which takes one prompt, and in rpc mode.
package pi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// Agent is pi. On SIGTERM it ends with its command; on SIGINT the command
// lives on.
func Agent() *talk.Agent {
	return &talk.Agent{
		Name: agent.Pi, Program: "pi", Install: "npm install -g @earendil-works/pi-coding-agent",
		Signal: syscall.SIGTERM,
		Env:    map[string]string{"NO_COLOR": "1", "CI": "1"},
		State: func(getenv func(string) string) []string {
			return []string{talk.Dir(getenv, "PI_CODING_AGENT_DIR", ".pi/agent")}
		},
		Exec: func(s talk.Setup) (talk.Conversation, error) {
			if s.Fork {
				return nil, fmt.Errorf("pi does not fork sessions in this mode: %w", spool.ErrUnsupported)
			}
			return &execMode{Setup: s, lines: lines{cwd: s.Cwd}}, nil
		},
		Duplex:       newRPC,
		Images:       true,
		Capabilities: []string{"interrupt", "steer", "ask", "images"},
	}
}

// execMode is pi --mode json.
type execMode struct {
	talk.OneShot
	talk.Setup
	lines
}

func (c *execMode) Command() (talk.Command, error) {
	argv := append([]string{cmp.Or(c.Config.Program, agent.Pi)}, c.Config.Extra...)
	argv = append(argv, "--print", "--mode", "json")
	argv = append(argv, sharedArgs(c.Setup)...)
	return talk.WithPrompt(argv, c.Opening.Text, nil), nil
}

// sharedArgs are those that both modes share. The session's id is never
// shortened: its beginning is a clock, and the same for all sessions of a
// minute.
func sharedArgs(s talk.Setup) []string {
	var argv []string
	if s.Config.Provider != "" {
		argv = append(argv, "--provider", s.Config.Provider)
	}
	if s.Config.Model != "" {
		argv = append(argv, "--model", s.Config.Model)
	}
	if s.Config.Effort != "" {
		argv = append(argv, "--thinking", s.Config.Effort)
	}
	if s.Resume != "" {
		argv = append(argv, "--session", s.Resume)
	}
	return argv
}

// lines translates the events of pi, in json and in rpc mode.
type lines struct {
	cwd string
	end *talk.Result // what agent_end said, unless there is more to come
	say string       // text of the last assistant message
	bad *talk.Result // that message failed
}

// message is a message of any role.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Stop    string          `json:"stopReason"`
	Error   string          `json:"errorMessage"`
	ID      string          `json:"responseId"`
	Usage   *struct {
		Input      int64 `json:"input"`
		Output     int64 `json:"output"`
		CacheRead  int64 `json:"cacheRead"`
		CacheWrite int64 `json:"cacheWrite"`
		Reasoning  int64 `json:"reasoning"`
		Cost       struct {
			Total float64 `json:"total"`
		} `json:"cost"`
	} `json:"usage"`
}

// updatePrefix begins the lines that repeat a message as it grows. There are many
// of them, and older versions put the whole message into each.
var updatePrefix = []byte(`{"type":"message_update"`)

func (c *lines) Line(b []byte, t *talk.Turn) {
	if !t.WantsDeltas() && bytes.HasPrefix(b, updatePrefix) && json.Valid(b) {
		return
	}
	var l struct {
		Type    string          `json:"type"`
		ID      string          `json:"id"`
		Cwd     string          `json:"cwd"`
		Message json.RawMessage `json:"message"`
		Update  struct {
			Type  string `json:"type"`
			Delta string `json:"delta"`
		} `json:"assistantMessageEvent"`

		Call    string          `json:"toolCallId"`
		Tool    string          `json:"toolName"`
		Args    json.RawMessage `json:"args"`
		Result  json.RawMessage `json:"result"`
		Partial json.RawMessage `json:"partialResult"`
		IsError bool            `json:"isError"`

		WillRetry *bool  `json:"willRetry"`
		Attempt   int    `json:"attempt"`
		Max       int    `json:"maxAttempts"`
		Delay     int64  `json:"delayMs"`
		Error     string `json:"errorMessage"`
	}
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
		return
	}
	switch l.Type {
	case "session":
		t.Start(agent.Started{Resume: l.ID, Cwd: l.Cwd})
	case "agent_start":
		c.end = nil
	case "turn_start":
		t.Step()
	case "message_update":
		switch l.Update.Type {
		case "text_delta":
			t.Message(agent.Message{Text: l.Update.Delta, Delta: true})
		case "thinking_delta":
			t.Reasoning(agent.Reasoning{Text: l.Update.Delta, Delta: true})
		}
	case "message_end":
		c.message(l.Message, t)
	case "tool_execution_start":
		a := talk.Describe(l.Tool, l.Args, c.cwd)
		a.ID, a.Phase = l.Call, agent.ActionStarted
		t.Action(a)
	case "tool_execution_update":
		if out := toolOutput(l.Partial); out != "" && t.Running(l.Call) {
			t.Action(agent.Action{ID: l.Call, Phase: agent.ActionUpdated, Output: out})
		}
	case "tool_execution_end":
		a := agent.Action{ID: l.Call, Phase: agent.ActionCompleted, OK: new(!l.IsError), Output: toolOutput(l.Result)}
		if !t.Running(l.Call) {
			d := talk.Describe(l.Tool, l.Args, c.cwd)
			a.Kind, a.Title, a.Tool, a.Input, a.Changes = d.Kind, d.Title, d.Tool, d.Input, d.Changes
		}
		if begun := t.RunningAction(l.Call); len(begun.Changes) == 1 {
			a.Changes = talk.Changed(begun.Changes[0], "", toolPatch(l.Result))
		}
		if m := exitCode().FindStringSubmatch(a.Output); m != nil && l.IsError {
			code, _ := strconv.Atoi(m[1])
			a.ExitCode = &code
		}
		t.Action(a)
	case "auto_retry_start":
		t.Retry(agent.Retry{Attempt: l.Attempt, Max: l.Max, DelayMs: l.Delay, Reason: l.Error})
	case "agent_end":
		c.end = c.outcome()
		if l.WillRetry != nil && !*l.WillRetry {
			t.Finish(*c.end)
		}
	case "agent_settled":
		if c.end != nil {
			t.Finish(*c.end)
		}
	case "compaction_start", "auto_compaction_start":
		t.Notice("info", talk.NoticeWarning, "the conversation is being compacted")
	case "message_start", "turn_end", "auto_retry_end", "entry_appended", "queue_update",
		"compaction_end", "auto_compaction_end", "response":
	default:
		t.Unknown(l.Type, b)
	}
}

// message takes a whole message. Only those of the assistant are news: the
// others repeat the prompt and the results of tools.
func (c *lines) message(raw json.RawMessage, t *talk.Turn) {
	var m message
	_ = talk.Decode(raw, &m)
	if m.Role != "assistant" {
		return
	}
	var said []string
	for _, part := range talk.Elements(m.Content) {
		var block struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
		}
		_ = talk.Decode(part, &block)
		switch block.Type {
		case "text":
			said = append(said, block.Text)
		case "thinking":
			t.Reasoning(agent.Reasoning{Text: block.Thinking})
		case "toolCall":
		default:
			t.Unknown("content "+block.Type, part)
		}
	}
	c.say, c.bad = strings.Join(said, "\n"), nil
	m.failed(c)
	if c.say != "" {
		t.Message(agent.Message{Text: c.say})
	}
	if u := m.Usage; u != nil && u.Input+u.Output+u.CacheRead+u.CacheWrite > 0 {
		t.Add(agent.Spend{Input: u.Input + u.CacheRead + u.CacheWrite, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
			Output: u.Output, Reasoning: u.Reasoning, CostUSD: u.Cost.Total})
	}
}

// failed notes that the message is not what was wanted.
func (m *message) failed(c *lines) {
	switch m.Stop {
	case "error":
		c.bad = &talk.Result{Outcome: spool.TurnError, Error: cmp.Or(m.Error, "pi says that the request failed")}
	case "aborted":
		c.bad = &talk.Result{Outcome: spool.TurnInterrupted, Class: agent.ClassStopped, Error: cmp.Or(m.Error, "aborted")}
	case "length":
		c.bad = &talk.Result{Outcome: spool.TurnError, Class: agent.ClassContext, Error: "the model reached its output token limit"}
	}
}

// outcome is what the last message says about the turn. The exit status says
// nothing: pi exits with zero whatever happened.
func (c *lines) outcome() *talk.Result {
	if c.bad != nil {
		r := *c.bad
		r.Answer = c.say
		return &r
	}
	return &talk.Result{Outcome: spool.TurnOK, Answer: c.say}
}

func toolOutput(v json.RawMessage) string {
	var r struct {
		Content json.RawMessage `json:"content"`
	}
	_ = talk.Decode(v, &r)
	return talk.Text(r.Content)
}

// exitCode is how pi ends the output of a command that failed.
var exitCode = talk.Lazily(`\nCommand exited with code (\d{1,3})$`)

// toolPatch returns the diff of a tool that changed a file.
func toolPatch(v json.RawMessage) string {
	var r struct {
		Details struct {
			Patch string `json:"patch"`
		} `json:"details"`
	}
	_ = talk.Decode(v, &r)
	return talk.PatchHunks(r.Details.Patch)
}

func (c *lines) Ended(x talk.Exit, t *talk.Turn) {
	switch {
	case c.end != nil:
		t.Finish(*c.end)
	case x.Signal != "" || x.Code != 0:
		t.Finish(talk.FailedExit("pi", x, c.say))
	default:
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassProtocol, Answer: c.say,
			Error: "pi finished without an agent_end event"})
	}
}
