package agents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// claudeRunner is Anthropic's claude. On SIGINT it ends its command, says so,
// and exits with zero.
func claudeRunner() *runner {
	return &runner{
		name: Claude, program: "claude", install: "npm install -g @anthropic-ai/claude-code",
		signal: syscall.SIGINT,
		env:    map[string]string{"DISABLE_AUTOUPDATER": "1"},
		exec: func(s setup) (conversation, error) {
			return &claudeExec{setup: s, claudeLines: claudeLines{cwd: s.cwd}}, nil
		},
		duplex: newClaudeDuplex,
		can:    []string{"interrupt", "ask"},
	}
}

// defaultTools may be used when nobody can be asked.
var defaultTools = []string{"Bash", "Read", "Edit", "Write"}

// claudeExec is claude -p.
type claudeExec struct {
	oneShot
	setup
	claudeLines
}

func (c *claudeExec) command() (command, error) {
	argv := []string{first(c.config.Program, Claude), "-p", "--output-format", "stream-json", "--verbose"}
	tools := c.config.AllowedTools
	if len(tools) == 0 {
		tools = defaultTools
	}
	argv = append(argv, c.claudeOptions(tools)...)
	argv = append(argv, c.config.Extra...)
	return saying(argv, c.opening.Text, c.claudeEnv()), nil
}

// claudeOptions are those that both modes share.
func (s setup) claudeOptions(tools []string) []string {
	var argv []string
	c := s.config
	if s.resume != "" {
		argv = append(argv, "--resume", s.resume)
		if s.fork {
			argv = append(argv, "--fork-session")
		}
	}
	if c.Model != "" {
		argv = append(argv, "--model", c.Model)
	}
	if c.Effort != "" {
		argv = append(argv, "--effort", c.Effort)
	}
	if c.Permissions != "" {
		argv = append(argv, "--permission-mode", c.Permissions)
	}
	if len(tools) > 0 {
		argv = append(argv, "--allowedTools", strings.Join(tools, ","))
	}
	if c.Budget.Steps > 0 {
		argv = append(argv, "--max-turns", strconv.Itoa(c.Budget.Steps))
	}
	if c.Budget.CostUSD > 0 {
		argv = append(argv, "--max-budget-usd", strconv.FormatFloat(c.Budget.CostUSD, 'f', -1, 64))
	}
	if c.SkipPermissions {
		argv = append(argv, "--dangerously-skip-permissions")
	}
	if c.Deltas {
		argv = append(argv, "--include-partial-messages")
	}
	return argv
}

func (s setup) claudeEnv() map[string]string {
	if s.config.Retries > 0 {
		return map[string]string{"CLAUDE_CODE_MAX_RETRIES": strconv.Itoa(s.config.Retries)}
	}
	return nil
}

// claudeLines translates claude's stream-json.
type claudeLines struct {
	cwd  string
	last string // message whose usage was counted
	now  agent.Spend
	past agent.Spend // of the messages before it
}

// claudeLine is one line. Members of different types of lines share it.
type claudeLine struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Session string `json:"session_id"`
	Parent  string `json:"parent_tool_use_id"`

	Message json.RawMessage `json:"message"` // of assistant and user
	Error   string          `json:"error"`
	IsAPI   bool            `json:"is_api_error_message"`
	Meta    []struct {
		ID   string `json:"id"`
		Kind string `json:"non_execution_kind"`
	} `json:"tool_result_meta"`

	// of system
	Cwd        string          `json:"cwd"`
	Model      string          `json:"model"`
	Mode       string          `json:"permissionMode"`
	Tools      []string        `json:"tools"`
	Version    string          `json:"claude_code_version"`
	KeySource  string          `json:"apiKeySource"`
	Style      string          `json:"output_style"`
	MCP        json.RawMessage `json:"mcp_servers"`
	Attempt    int             `json:"attempt"`
	Retries    int             `json:"max_retries"`
	Delay      float64         `json:"retry_delay_ms"`
	Status     int             `json:"error_status"`
	ToolName   string          `json:"tool_name"`
	ToolUse    string          `json:"tool_use_id"`
	Text       string          `json:"content"`
	Desc       string          `json:"description"`
	DenyReason string          `json:"decision_reason"`

	Event json.RawMessage `json:"event"` // of stream_event
}

// claudeQuiet are lines that tell nothing a reader could want.
var claudeQuiet = []string{
	"thinking_tokens", "status", "session_state_changed", "hook_started", "hook_progress", "hook_response", "files_persisted",
}

func (c *claudeLines) line(b []byte, t *turn) {
	var l claudeLine
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	switch l.Type {
	case "system":
		c.system(&l, b, t)
	case "assistant":
		c.assistant(&l, t)
	case "user":
		c.user(&l, t)
	case "result":
		c.result(b, t)
	case "stream_event":
		c.delta(&l, t)
	case "tool_progress":
		if !t.running(l.ToolUse) {
			t.unknown(l.Type, b)
			return
		}
		t.action(agent.Action{ID: l.ToolUse, Phase: agent.ActionUpdated})
	case "control_request", "control_response", "control_cancel_request", "keep_alive":
	default:
		t.unknown(l.Type, b)
	}
}

func (c *claudeLines) system(l *claudeLine, b []byte, t *turn) {
	switch l.Subtype {
	case "init":
		detail, err := json.Marshal(map[string]any{"api_key_source": l.KeySource, "output_style": l.Style, "mcp_servers": l.MCP})
		if err != nil {
			detail = nil
		}
		t.start(agent.Started{Resume: l.Session, Title: l.Model, Model: l.Model, Cwd: l.Cwd, Mode: l.Mode,
			Version: l.Version, Tools: l.Tools, Detail: detail})
	case "api_retry":
		reason := l.Error
		if reason == "unknown" {
			reason = ""
		}
		t.retry(agent.Retry{Attempt: l.Attempt, Max: l.Retries, DelayMs: int64(l.Delay), Status: l.Status, Reason: reason})
	case "permission_denied":
		t.put(spool.KindNotice, spool.Notice{Level: "warning", Code: NoticeDenied,
			Text: "not allowed: " + first(l.ToolName, "a tool"), Data: b}, nil, nil)
	case "compact_boundary":
		t.put(spool.KindNotice, spool.Notice{Code: NoticeWarning, Text: "the conversation was compacted", Data: b}, nil, nil)
	default:
		if !slices.Contains(claudeQuiet, l.Subtype) {
			t.unknown("system "+l.Subtype, b)
		}
	}
}

// claudeMessage is what assistant and user lines hold.
type claudeMessage struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   *claudeUsage    `json:"usage"`
}

// claudeUsage counts cached input apart.
type claudeUsage struct {
	Input      int64 `json:"input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Details    struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (u *claudeUsage) spend() agent.Spend {
	return agent.Spend{Input: u.Input + u.CacheRead + u.CacheWrite, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
		Output: u.Output, Reasoning: u.Details.Thinking}
}

// claudeBlock is a part of a message. They are decoded one by one, so that
// one of a new type does not hide the others.
type claudeBlock struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	Input    json.RawMessage `json:"input"`
	ToolUse  string          `json:"tool_use_id"`
	Content  json.RawMessage `json:"content"`
	IsError  bool            `json:"is_error"`
}

// blocks decodes content, which may be a plain string.
func blocks(content json.RawMessage, t *turn, do func(claudeBlock)) {
	var s string
	if json.Unmarshal(content, &s) == nil {
		do(claudeBlock{Type: "text", Text: s})
		return
	}
	for _, raw := range list(content) {
		var b claudeBlock
		if lenient(raw, &b) != nil {
			t.unknown("content", raw)
			continue
		}
		switch b.Type {
		case "text", "thinking", "tool_use", "tool_result":
			do(b)
		case "server_tool_use", "mcp_tool_use":
			b.Type = "tool_use"
			do(b)
		case "web_search_tool_result", "web_fetch_tool_result", "mcp_tool_result":
			b.Type = "tool_result"
			do(b)
		case "redacted_thinking":
		default:
			t.unknown("content "+b.Type, raw)
		}
	}
}

func (c *claudeLines) assistant(l *claudeLine, t *turn) {
	var m claudeMessage
	_ = lenient(l.Message, &m)
	c.count(&m, t)
	blocks(m.Content, t, func(b claudeBlock) {
		switch b.Type {
		case "text":
			if l.IsAPI || m.Model == "<synthetic>" { // claude's own words about an error
				t.notice("warning", NoticeWarning, b.Text)
				return
			}
			t.message(agent.Message{ID: m.ID, Text: b.Text, Parent: l.Parent})
		case "thinking":
			t.reasoning(agent.Reasoning{ID: m.ID, Text: b.Thinking, Parent: l.Parent})
		case "tool_use":
			a := describe(b.Name, b.Input, c.cwd)
			a.ID, a.Phase, a.Parent = b.ID, agent.ActionStarted, l.Parent
			t.action(a)
			if items := todos(b.Input); strings.EqualFold(b.Name, "TodoWrite") && items != nil {
				t.plan(agent.Plan{ID: b.ID, Items: items})
			}
		}
	})
}

// count adds the usage of a message, which each of its lines repeats.
func (c *claudeLines) count(m *claudeMessage, t *turn) {
	if m.Usage == nil || m.ID == "" || m.Model == "<synthetic>" {
		return
	}
	if m.ID != c.last {
		c.past, c.now, c.last = sum(c.past, c.now), agent.Spend{}, m.ID
		t.step()
	}
	c.now = m.Usage.spend()
	cost := t.used.CostUSD
	total := sum(c.past, c.now)
	total.CostUSD = cost
	t.setUsed(total)
}

// exitCode is how claude begins the result of a command that failed.
var exitCode = lazily(`^Exit code (\d{1,3})\b`)

func (c *claudeLines) user(l *claudeLine, t *turn) {
	var m claudeMessage
	_ = lenient(l.Message, &m)
	blocks(m.Content, t, func(b claudeBlock) {
		switch b.Type {
		case "text":
			t.message(agent.Message{Role: "user", Text: b.Text, Parent: l.Parent})
		case "tool_result":
			a := agent.Action{ID: b.ToolUse, Phase: agent.ActionCompleted, OK: is(!b.IsError), Output: texts(b.Content), Parent: l.Parent}
			if !t.running(b.ToolUse) {
				a.Kind, a.Title = agent.ActionTool, "tool result"
			}
			if m := exitCode().FindStringSubmatch(a.Output); m != nil && b.IsError {
				code, _ := strconv.Atoi(m[1])
				a.ExitCode = &code
			}
			for _, meta := range l.Meta {
				if meta.ID == b.ToolUse {
					a.Status = meta.Kind
				}
			}
			t.action(a)
		}
	})
}

func (c *claudeLines) delta(l *claudeLine, t *turn) {
	var e struct {
		Delta struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
		} `json:"delta"`
	}
	_ = lenient(l.Event, &e)
	switch e.Delta.Type {
	case "text_delta":
		t.message(agent.Message{Text: e.Delta.Text, Delta: true, Parent: l.Parent})
	case "thinking_delta":
		t.reasoning(agent.Reasoning{Text: e.Delta.Thinking, Delta: true, Parent: l.Parent})
	}
}

func (c *claudeLines) result(b []byte, t *turn) {
	var l struct {
		Session string       `json:"session_id"`
		Subtype string       `json:"subtype"`
		IsError bool         `json:"is_error"`
		Result  string       `json:"result"`
		Errors  []string     `json:"errors"`
		Reason  string       `json:"terminal_reason"`
		Stop    string       `json:"stop_reason"`
		Status  int          `json:"api_error_status"`
		Cost    *float64     `json:"total_cost_usd"`
		Usage   *claudeUsage `json:"usage"`
		Models  map[string]struct {
			Input      int64 `json:"inputTokens"`
			CacheRead  int64 `json:"cacheReadInputTokens"`
			CacheWrite int64 `json:"cacheCreationInputTokens"`
			Output     int64 `json:"outputTokens"`
			Reasoning  int64 `json:"thinkingTokens"`
			Window     int64 `json:"contextWindow"`
		} `json:"modelUsage"`
	}
	_ = lenient(b, &l) // it was decoded once already
	// A session that could not be resumed has an id here, too, but there
	// is none.
	if l.Subtype == "success" || len(l.Models) > 0 {
		t.session(l.Session)
	}
	if l.Usage != nil {
		s := l.Usage.spend()
		s.CostUSD = t.used.CostUSD
		t.setUsed(s)
	}
	if len(l.Models) > 0 && l.Cost != nil { // totals of the session, both
		total := agent.Spend{CostUSD: *l.Cost}
		for _, m := range l.Models {
			total = sum(total, agent.Spend{Input: m.Input + m.CacheRead + m.CacheWrite, CacheRead: m.CacheRead,
				CacheWrite: m.CacheWrite, Output: m.Output, Reasoning: m.Reasoning})
			t.context(t.ctxLen[0], max(t.ctxLen[1], m.Window))
		}
		t.setSession(total)
	}
	c.last, c.now, c.past = "", agent.Spend{}, agent.Spend{}
	if !l.IsError {
		r := result{outcome: spool.TurnOK, answer: l.Result}
		if l.Stop == "refusal" {
			r.outcome, r.err = spool.TurnRefused, "the model refused"
		}
		t.finish(r)
		return
	}
	errs := slices.DeleteFunc(l.Errors, func(s string) bool { return strings.HasPrefix(s, "[ede_diagnostic]") })
	r := result{outcome: spool.TurnError, answer: t.answer,
		err: first(strings.Join(errs, "; "), l.Result, l.Reason, fmt.Sprintf("claude run failed (%s)", l.Subtype))}
	r.class = classify(r.err, l.Status)
	switch {
	case l.Subtype == "error_max_turns":
		r.outcome = spool.TurnMaxTurns
	case l.Subtype == "error_max_budget_usd":
		r.outcome = spool.TurnBudget
	case strings.HasPrefix(l.Reason, "aborted"):
		r.outcome, r.class = spool.TurnInterrupted, agent.ClassStopped
	}
	t.finish(r)
}

func (c *claudeLines) ended(x exit, t *turn) {
	switch {
	case x.signal != "" || x.code != 0:
		t.finish(failedExit("claude", x, t.answer))
	case !t.run.started:
		t.finish(result{outcome: spool.TurnError, class: agent.ClassProtocol, answer: t.answer,
			err: "claude finished but no session_id was captured"})
	default:
		t.finish(result{outcome: spool.TurnError, class: agent.ClassProtocol, answer: t.answer,
			err: "claude finished without a result event"})
	}
}
