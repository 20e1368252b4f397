// Package claude talks to Anthropic's claude: to claude -p with one prompt, and
// with lines of JSON both ways.
package claude

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// Agent is Anthropic's claude. On SIGINT it ends its command, says so,
// and exits with zero.
func Agent() *talk.Agent {
	return &talk.Agent{
		Name: agent.Claude, Program: "claude", Install: "npm install -g @anthropic-ai/claude-code",
		Signal: syscall.SIGINT,
		Env:    map[string]string{"DISABLE_AUTOUPDATER": "1"},
		State:  state,
		Exec: func(s talk.Setup) (talk.Conversation, error) {
			return &execMode{Setup: s, lines: lines{cwd: s.Cwd}}, nil
		},
		Duplex:       newDuplex,
		Images:       true,
		Capabilities: []string{"interrupt", "ask", "images"},
	}
}

// state is where claude keeps its configuration and sessions: one directory, and
// a file beside it unless the directory was chosen.
func state(getenv func(string) string) []string {
	list := []string{talk.Dir(getenv, "CLAUDE_CONFIG_DIR", ".claude")}
	if home := getenv("HOME"); home != "" && getenv("CLAUDE_CONFIG_DIR") == "" {
		list = append(list, filepath.Join(home, ".claude.json"))
	}
	return list
}

// defaultTools may be used in exec mode, which cannot ask.
var defaultTools = []string{"Bash", "Read", "Edit", "Write"}

// execMode is claude -p.
type execMode struct {
	talk.OneShot
	talk.Setup
	lines
}

func (c *execMode) Command() (talk.Command, error) {
	argv := []string{cmp.Or(c.Config.Program, agent.Claude), "-p", "--output-format", "stream-json", "--verbose"}
	tools := c.Config.AllowedTools
	if len(tools) == 0 {
		tools = defaultTools
	}
	argv = append(argv, sharedArgs(c.Setup, tools)...)
	argv = append(argv, c.Config.Extra...)
	return talk.WithPrompt(argv, c.Opening.Text, environ(c.Setup)), nil
}

// sharedArgs are those that both modes share.
func sharedArgs(s talk.Setup, tools []string) []string {
	var argv []string
	c := s.Config
	if s.Resume != "" {
		argv = append(argv, "--resume", s.Resume)
		if s.Fork {
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

func environ(s talk.Setup) map[string]string {
	if s.Config.Retries > 0 {
		return map[string]string{"CLAUDE_CODE_MAX_RETRIES": strconv.Itoa(s.Config.Retries)}
	}
	return nil
}

// lines translates claude's stream-json.
type lines struct {
	cwd  string
	last string // message whose usage was counted
	now  agent.Spend
	past agent.Spend // of the messages before it
}

// streamLine is one line. Members of different types of lines share it.
type streamLine struct {
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
	Result json.RawMessage `json:"tool_use_result"`

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

// quietSubtypes are lines that tell nothing a reader could want.
var quietSubtypes = []string{
	"thinking_tokens", "status", "session_state_changed", "hook_started", "hook_progress", "hook_response", "files_persisted",
}

func (c *lines) Line(b []byte, t *talk.Turn) {
	var l streamLine
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
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
		if !t.Running(l.ToolUse) {
			t.Unknown(l.Type, b)
			return
		}
		t.Action(agent.Action{ID: l.ToolUse, Phase: agent.ActionUpdated})
	case "control_request", "control_response", "control_cancel_request", "keep_alive":
	default:
		t.Unknown(l.Type, b)
	}
}

func (c *lines) system(l *streamLine, b []byte, t *talk.Turn) {
	switch l.Subtype {
	case "init":
		detail, err := json.Marshal(map[string]any{"api_key_source": l.KeySource, "output_style": l.Style, "mcp_servers": l.MCP})
		if err != nil {
			detail = nil
		}
		t.Start(agent.Started{Resume: l.Session, Title: l.Model, Model: l.Model, Cwd: l.Cwd, Mode: l.Mode,
			Version: l.Version, Tools: l.Tools, Detail: detail})
	case "api_retry":
		reason := l.Error
		if reason == "unknown" {
			reason = ""
		}
		t.Retry(agent.Retry{Attempt: l.Attempt, Max: l.Retries, DelayMs: int64(l.Delay), Status: l.Status, Reason: reason})
	case "permission_denied":
		t.Put(spool.KindNotice, spool.Notice{Level: "warning", Code: talk.NoticeDenied,
			Text: "not allowed: " + cmp.Or(l.ToolName, "a tool"), Data: b}, nil)
	case "compact_boundary":
		t.Put(spool.KindNotice, spool.Notice{Code: talk.NoticeWarning, Text: "the conversation was compacted", Data: b}, nil)
	default:
		if !slices.Contains(quietSubtypes, l.Subtype) {
			t.Unknown("system "+l.Subtype, b)
		}
	}
}

// message is what assistant and user lines hold.
type message struct {
	ID      string          `json:"id"`
	Model   string          `json:"model"`
	Content json.RawMessage `json:"content"`
	Usage   *tokens         `json:"usage"`
}

// tokens counts cached input apart.
type tokens struct {
	Input      int64 `json:"input_tokens"`
	CacheRead  int64 `json:"cache_read_input_tokens"`
	CacheWrite int64 `json:"cache_creation_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Details    struct {
		Thinking int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

func (u *tokens) spend() agent.Spend {
	return agent.Spend{Input: u.Input + u.CacheRead + u.CacheWrite, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite,
		Output: u.Output, Reasoning: u.Details.Thinking}
}

// block is a part of a message. They are decoded one by one, so that
// one of a new type does not hide the others.
type block struct {
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
func blocks(content json.RawMessage, t *talk.Turn, do func(block)) {
	var s string
	if json.Unmarshal(content, &s) == nil {
		do(block{Type: "text", Text: s})
		return
	}
	for _, raw := range talk.Elements(content) {
		var b block
		if talk.Decode(raw, &b) != nil {
			t.Unknown("content", raw)
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
			t.Unknown("content "+b.Type, raw)
		}
	}
}

func (c *lines) assistant(l *streamLine, t *talk.Turn) {
	var m message
	_ = talk.Decode(l.Message, &m)
	c.count(&m, t)
	blocks(m.Content, t, func(b block) {
		switch b.Type {
		case "text":
			if l.IsAPI || m.Model == "<synthetic>" { // claude's own words about an error
				t.Notice("warning", talk.NoticeWarning, b.Text)
				return
			}
			t.Message(agent.Message{ID: m.ID, Text: b.Text, Parent: l.Parent})
		case "thinking":
			t.Reasoning(agent.Reasoning{ID: m.ID, Text: b.Thinking, Parent: l.Parent})
		case "tool_use":
			a := talk.Describe(b.Name, b.Input, c.cwd)
			a.ID, a.Phase, a.Parent = b.ID, agent.ActionStarted, l.Parent
			t.Action(a)
			if items := talk.Todos(b.Input); strings.EqualFold(b.Name, "TodoWrite") && items != nil {
				t.Plan(agent.Plan{ID: b.ID, Items: items})
			}
		}
	})
}

// count adds the usage of a message, which each of its lines repeats.
func (c *lines) count(m *message, t *talk.Turn) {
	if m.Usage == nil || m.ID == "" || m.Model == "<synthetic>" {
		return
	}
	if m.ID != c.last {
		c.past, c.now, c.last = talk.Add(c.past, c.now), agent.Spend{}, m.ID
		t.Step()
	}
	c.now = m.Usage.spend()
	cost := t.Used().CostUSD
	total := talk.Add(c.past, c.now)
	total.CostUSD = cost
	t.SetUsed(total)
}

// exitCode is how claude begins the result of a command that failed.
var exitCode = talk.Lazily(`^Exit code (\d{1,3})\b`)

func (c *lines) user(l *streamLine, t *talk.Turn) {
	var m message
	_ = talk.Decode(l.Message, &m)
	blocks(m.Content, t, func(b block) {
		switch b.Type {
		case "text":
			t.Message(agent.Message{Role: "user", Text: b.Text, Parent: l.Parent})
		case "tool_result":
			a := agent.Action{ID: b.ToolUse, Phase: agent.ActionCompleted, OK: new(!b.IsError), Output: talk.Text(b.Content), Parent: l.Parent}
			if !t.Running(b.ToolUse) {
				a.Kind, a.Title = agent.ActionTool, "tool result"
			}
			if m := exitCode().FindStringSubmatch(a.Output); m != nil && b.IsError {
				code, _ := strconv.Atoi(m[1])
				a.ExitCode = &code
			}
			a.Changes = c.changes(t.RunningAction(b.ToolUse), l.Result)
			for _, meta := range l.Meta {
				if meta.ID == b.ToolUse {
					a.Status = meta.Kind
				}
			}
			t.Action(a)
		}
	})
}

// changes returns what a tool did to the file of its action, as the result
// tells, or nil.
func (c *lines) changes(begun agent.Action, result json.RawMessage) []agent.FileChange {
	var r struct {
		Type    string `json:"type"`
		Path    string `json:"filePath"`
		Content string `json:"content"`
		Patch   []struct {
			OldStart int      `json:"oldStart"`
			OldLines int      `json:"oldLines"`
			NewStart int      `json:"newStart"`
			NewLines int      `json:"newLines"`
			Lines    []string `json:"lines"`
		} `json:"structuredPatch"`
	}
	if len(begun.Changes) != 1 || talk.Decode(result, &r) != nil || talk.Relative(r.Path, c.cwd) != begun.Changes[0].Path {
		return nil
	}
	if r.Type == "create" {
		return talk.Changed(begun.Changes[0], "add", talk.LineDiff("", r.Content))
	}
	var diff strings.Builder
	for _, h := range r.Patch {
		fmt.Fprintf(&diff, "@@ -%d,%d +%d,%d @@\n", h.OldStart, h.OldLines, h.NewStart, h.NewLines)
		for _, l := range h.Lines {
			diff.WriteString(l + "\n")
		}
	}
	return talk.Changed(begun.Changes[0], "", talk.PatchHunks(diff.String()))
}

func (c *lines) delta(l *streamLine, t *talk.Turn) {
	var e struct {
		Delta struct {
			Type     string `json:"type"`
			Text     string `json:"text"`
			Thinking string `json:"thinking"`
		} `json:"delta"`
	}
	_ = talk.Decode(l.Event, &e)
	switch e.Delta.Type {
	case "text_delta":
		t.Message(agent.Message{Text: e.Delta.Text, Delta: true, Parent: l.Parent})
	case "thinking_delta":
		t.Reasoning(agent.Reasoning{Text: e.Delta.Thinking, Delta: true, Parent: l.Parent})
	}
}

func (c *lines) result(b []byte, t *talk.Turn) {
	var l struct {
		Session string   `json:"session_id"`
		Subtype string   `json:"subtype"`
		IsError bool     `json:"is_error"`
		Result  string   `json:"result"`
		Errors  []string `json:"errors"`
		Reason  string   `json:"terminal_reason"`
		Stop    string   `json:"stop_reason"`
		Status  int      `json:"api_error_status"`
		Cost    *float64 `json:"total_cost_usd"`
		Usage   *tokens  `json:"usage"`
		Models  map[string]struct {
			Input      int64 `json:"inputTokens"`
			CacheRead  int64 `json:"cacheReadInputTokens"`
			CacheWrite int64 `json:"cacheCreationInputTokens"`
			Output     int64 `json:"outputTokens"`
			Reasoning  int64 `json:"thinkingTokens"`
			Window     int64 `json:"contextWindow"`
		} `json:"modelUsage"`
	}
	_ = talk.Decode(b, &l) // it was decoded once already
	// A session that could not be resumed has an id here, too, but there
	// is none.
	if l.Subtype == "success" || len(l.Models) > 0 {
		t.Session(l.Session)
	}
	if l.Usage != nil {
		s := l.Usage.spend()
		s.CostUSD = t.Used().CostUSD
		t.SetUsed(s)
	}
	if len(l.Models) > 0 && l.Cost != nil { // totals of the session, both
		total := agent.Spend{CostUSD: *l.Cost}
		for _, m := range l.Models {
			total = talk.Add(total, agent.Spend{Input: m.Input + m.CacheRead + m.CacheWrite, CacheRead: m.CacheRead,
				CacheWrite: m.CacheWrite, Output: m.Output, Reasoning: m.Reasoning})
			t.ContextSize(m.Window)
		}
		t.SetSession(total)
	}
	c.last, c.now, c.past = "", agent.Spend{}, agent.Spend{}
	if !l.IsError {
		r := talk.Result{Outcome: spool.TurnOK, Answer: l.Result}
		if l.Stop == "refusal" {
			r.Outcome, r.Error = spool.TurnRefused, "the model refused"
		}
		t.Finish(r)
		return
	}
	errs := slices.DeleteFunc(l.Errors, func(s string) bool { return strings.HasPrefix(s, "[ede_diagnostic]") })
	r := talk.Result{Outcome: spool.TurnError, Answer: t.LastText(),
		Error: cmp.Or(strings.Join(errs, "; "), l.Result, l.Reason, fmt.Sprintf("claude run failed (%s)", l.Subtype))}
	r.Class = talk.Classify(r.Error, l.Status)
	switch {
	case l.Subtype == "error_max_turns":
		r.Outcome = agent.TurnMaxTurns
	case l.Subtype == "error_max_budget_usd":
		r.Outcome = agent.TurnBudget
	case strings.HasPrefix(l.Reason, "aborted"):
		r.Outcome, r.Class = spool.TurnInterrupted, agent.ClassStopped
	}
	t.Finish(r)
}

func (c *lines) Ended(x talk.Exit, t *talk.Turn) {
	switch {
	case x.Signal != "" || x.Code != 0:
		t.Finish(talk.FailedExit("claude", x, t.LastText()))
	case !t.SessionKnown():
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassProtocol, Answer: t.LastText(),
			Error: "claude finished but no session_id was captured"})
	default:
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassProtocol, Answer: t.LastText(),
			Error: "claude finished without a result event"})
	}
}
