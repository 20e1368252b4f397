package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// piRunner is pi. On SIGTERM it ends with its command; on SIGINT the command
// lives on.
func piRunner() *runner {
	return &runner{
		name: Pi, program: "pi", install: "npm install -g @earendil-works/pi-coding-agent",
		signal: syscall.SIGTERM,
		env:    map[string]string{"NO_COLOR": "1", "CI": "1"},
		exec: func(s setup) (conversation, error) {
			if s.fork {
				return nil, fmt.Errorf("pi does not fork sessions in this mode: %w", spool.ErrUnsupported)
			}
			return &piExec{setup: s, piLines: piLines{cwd: s.cwd}}, nil
		},
		duplex: newPiRPC,
		can:    []string{"interrupt", "steer", "ask"},
	}
}

// piExec is pi --mode json.
type piExec struct {
	oneShot
	setup
	piLines
}

func (c *piExec) command() (command, error) {
	argv := append([]string{first(c.config.Program, Pi)}, c.config.Extra...)
	argv = append(argv, "--print", "--mode", "json")
	argv = append(argv, c.piOptions()...)
	text := c.opening.Text
	if strings.HasPrefix(text, "@") { // or it would be the name of a file
		text = " " + text
	}
	return saying(argv, text, nil), nil
}

// piOptions are those that both modes share. The session's id is never
// shortened: its beginning is a clock, and the same for all sessions of a
// minute.
func (s setup) piOptions() []string {
	var argv []string
	if s.config.Provider != "" {
		argv = append(argv, "--provider", s.config.Provider)
	}
	if s.config.Model != "" {
		argv = append(argv, "--model", s.config.Model)
	}
	if s.config.Effort != "" {
		argv = append(argv, "--thinking", s.config.Effort)
	}
	if s.resume != "" {
		argv = append(argv, "--session", s.resume)
	}
	return argv
}

// piLines translates the events of pi, in json and in rpc mode.
type piLines struct {
	cwd string
	end *result // what agent_end said, unless there is more to come
	say string  // text of the last assistant message
	bad *result // that message failed
}

// piMessage is a message of any role.
type piMessage struct {
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

// piUpdate begins the lines that repeat a message as it grows. There are many
// of them, and older versions put the whole message into each.
var piUpdate = []byte(`{"type":"message_update"`)

func (c *piLines) line(b []byte, t *turn) {
	if !t.run.deltas && bytes.HasPrefix(b, piUpdate) && json.Valid(b) {
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
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	switch l.Type {
	case "session":
		t.start(agent.Started{Resume: l.ID, Cwd: l.Cwd})
	case "agent_start":
		c.end = nil
	case "turn_start":
		t.step()
	case "message_update":
		switch l.Update.Type {
		case "text_delta":
			t.message(agent.Message{Text: l.Update.Delta, Delta: true})
		case "thinking_delta":
			t.reasoning(agent.Reasoning{Text: l.Update.Delta, Delta: true})
		}
	case "message_end":
		c.message(l.Message, t)
	case "tool_execution_start":
		a := describe(l.Tool, l.Args, c.cwd)
		a.ID, a.Phase = l.Call, agent.ActionStarted
		t.action(a)
	case "tool_execution_update":
		if out := piOutput(l.Partial); out != "" && t.running(l.Call) {
			t.action(agent.Action{ID: l.Call, Phase: agent.ActionUpdated, Output: out})
		}
	case "tool_execution_end":
		a := agent.Action{ID: l.Call, Phase: agent.ActionCompleted, OK: is(!l.IsError), Output: piOutput(l.Result)}
		if !t.running(l.Call) {
			d := describe(l.Tool, l.Args, c.cwd)
			a.Kind, a.Title, a.Tool, a.Input = d.Kind, d.Title, d.Tool, d.Input
		}
		t.action(a)
	case "auto_retry_start":
		t.retry(agent.Retry{Attempt: l.Attempt, Max: l.Max, DelayMs: l.Delay, Reason: l.Error})
	case "agent_end":
		c.end = c.outcome()
		if l.WillRetry != nil && !*l.WillRetry {
			t.finish(*c.end)
		}
	case "agent_settled":
		if c.end != nil {
			t.finish(*c.end)
		}
	case "compaction_start", "auto_compaction_start":
		t.notice("info", NoticeWarning, "the conversation is being compacted")
	case "message_start", "turn_end", "auto_retry_end", "entry_appended", "queue_update",
		"compaction_end", "auto_compaction_end", "response":
	default:
		t.unknown(l.Type, b)
	}
}

// message takes a whole message. Only those of the assistant are news: the
// others repeat the prompt and the results of tools.
func (c *piLines) message(raw json.RawMessage, t *turn) {
	var m piMessage
	_ = lenient(raw, &m)
	if m.Role != "assistant" {
		return
	}
	var said []string
	for _, part := range list(m.Content) {
		var block struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
		}
		_ = lenient(part, &block)
		switch block.Type {
		case "text":
			said = append(said, block.Text)
		case "thinking":
			t.reasoning(agent.Reasoning{Text: block.Thinking})
		case "toolCall":
		default:
			t.unknown("content "+block.Type, part)
		}
	}
	c.say, c.bad = strings.Join(said, "\n"), nil
	m.failed(c)
	if c.say != "" {
		t.message(agent.Message{Text: c.say})
	}
	if u := m.Usage; u != nil && u.Input+u.Output+u.CacheRead+u.CacheWrite > 0 {
		t.add(agent.Spend{Input: u.Input + u.CacheRead + u.CacheWrite, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
			Output: u.Output, Reasoning: u.Reasoning, CostUSD: u.Cost.Total})
	}
}

// failed notes that the message is not what was wanted.
func (m *piMessage) failed(c *piLines) {
	switch m.Stop {
	case "error":
		c.bad = &result{outcome: spool.TurnError, err: first(m.Error, "pi says that the request failed")}
	case "aborted":
		c.bad = &result{outcome: spool.TurnInterrupted, class: agent.ClassStopped, err: first(m.Error, "aborted")}
	case "length":
		c.bad = &result{outcome: spool.TurnError, class: agent.ClassContext, err: "the model reached its output token limit"}
	}
}

// outcome is what the last message says about the turn. The exit status says
// nothing: pi exits with zero whatever happened.
func (c *piLines) outcome() *result {
	if c.bad != nil {
		r := *c.bad
		r.answer = c.say
		return &r
	}
	return &result{outcome: spool.TurnOK, answer: c.say}
}

func piOutput(v json.RawMessage) string {
	var r struct {
		Content json.RawMessage `json:"content"`
	}
	_ = lenient(v, &r)
	return texts(r.Content)
}

func (c *piLines) ended(x exit, t *turn) {
	switch {
	case c.end != nil:
		t.finish(*c.end)
	case x.signal != "" || x.code != 0:
		t.finish(failedExit("pi", x, c.say))
	default:
		t.finish(result{outcome: spool.TurnError, class: agent.ClassProtocol, answer: c.say,
			err: "pi finished without an agent_end event"})
	}
}
