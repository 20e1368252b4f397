// Package codex talks to OpenAI's codex: to codex exec, which takes one prompt,
// and to codex app-server, which takes prompt after prompt.
package codex

import (
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

// Agent is OpenAI's codex. On SIGINT it ends with its command; on
// SIGTERM the command lives on in a session of its own.
func Agent() *talk.Agent {
	return &talk.Agent{
		Name: agent.Codex, Program: "codex", Install: "npm install -g @openai/codex",
		Signal: syscall.SIGINT, Exclusive: true,
		State: func(getenv func(string) string) []string { return []string{talk.Dir(getenv, "CODEX_HOME", ".codex")} },
		Exec: func(s talk.Setup) (talk.Conversation, error) {
			if bad := findExecOnlyFlag(s.Config.Extra); bad != "" {
				return nil, fmt.Errorf("extra argument %q belongs to codex exec, which sets it itself: extra arguments stand before exec", bad)
			}
			return &execMode{Setup: s, lines: lines{cwd: s.Cwd}}, nil
		},
		Duplex:       newAppServer,
		Images:       true,
		Capabilities: []string{"interrupt", "steer", "ask", "images"},
	}
}

// execOnly are the options that only codex exec knows.
var execOnly = []string{"--skip-git-repo-check", "--json", "--output-schema", "--output-last-message", "--color", "-o"}

// findExecOnlyFlag returns the first extra argument that would have to stand
// after exec, as it is written, or nothing.
func findExecOnlyFlag(extra []string) string {
	for _, arg := range extra {
		for _, flag := range execOnly {
			if arg == flag {
				return arg
			}
		}
		for _, flag := range []string{"--output-schema=", "--output-last-message=", "--color="} {
			if strings.HasPrefix(arg, flag) {
				return arg
			}
		}
	}
	return ""
}

// execMode is codex exec --json.
type execMode struct {
	talk.OneShot
	talk.Setup
	lines
}

func (c *execMode) Command() (talk.Command, error) {
	argv := append(program(c.Setup), c.Config.Extra...)
	if c.Config.Profile != "" {
		argv = append(argv, "--profile", c.Config.Profile)
	}
	if c.Config.Model != "" {
		argv = append(argv, "--model", c.Config.Model)
	}
	if c.Config.Effort != "" {
		argv = append(argv, "-c", "model_reasoning_effort="+c.Config.Effort)
	}
	if c.Config.Sandbox != "" {
		argv = append(argv, "-s", c.Config.Sandbox)
	}
	if c.Config.SkipPermissions {
		argv = append(argv, "--dangerously-bypass-approvals-and-sandbox")
	}
	argv = append(argv, "exec", "--json", "--skip-git-repo-check", "--color=never")
	if c.Resume != "" {
		verb := "resume"
		if c.Fork {
			verb = "fork"
		}
		argv = append(argv, verb, c.Resume)
	}
	return talk.Command{Argv: append(argv, "-"), Stdin: []byte(c.Opening.Text)}, nil
}

// program begins the command line of codex in either mode: without
// notifications, which are for people at a terminal.
func program(s talk.Setup) []string {
	return []string{cmp.Or(s.Config.Program, agent.Codex), "-c", "notify=[]"}
}

// lines translates the events of codex exec --json.
type lines struct {
	cwd     string
	turns   int
	plain   string // last message without a phase
	final   string // last message with phase final_answer
	retried bool   // since the last message
}

// item is the thing an item event is about.
type item struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Text    string `json:"text"`
	Message string `json:"message"`
	Phase   string `json:"phase"`
	Status  string `json:"status"`

	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`

	Changes []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`

	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`

	Query  string `json:"query"`
	Prompt string `json:"prompt"`

	Items []struct {
		Text      string `json:"text"`
		Completed bool   `json:"completed"`
	} `json:"items"`
}

func (c *lines) Line(b []byte, t *talk.Turn) {
	var l struct {
		Type     string          `json:"type"`
		ThreadID string          `json:"thread_id"`
		Message  string          `json:"message"`
		Item     json.RawMessage `json:"item"`
		Error    struct {
			Message string `json:"message"`
		} `json:"error"`
		Usage *struct {
			Input      int64 `json:"input_tokens"`
			CacheRead  int64 `json:"cached_input_tokens"`
			CacheWrite int64 `json:"cache_write_input_tokens"`
			Output     int64 `json:"output_tokens"`
			Reasoning  int64 `json:"reasoning_output_tokens"`
		} `json:"usage"`
	}
	if err := talk.Decode(b, &l); err != nil {
		t.Unparsed(b, err)
		return
	}
	switch l.Type {
	case "thread.started":
		t.Session(l.ThreadID)
	case "turn.started":
		c.plain, c.final = "", ""
		t.Action(agent.Action{ID: fmt.Sprintf("turn_%d", c.turns), Kind: agent.ActionTurn, Phase: agent.ActionStarted, Title: "turn started"})
		c.turns++
	case "turn.completed":
		c.endTurn(t, true)
		if u := l.Usage; u != nil {
			t.SetTotal(agent.Spend{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning})
		}
		t.Finish(talk.Result{Outcome: spool.TurnOK, Answer: c.reply()})
	case "turn.failed":
		c.endTurn(t, false)
		t.Finish(talk.Result{Outcome: spool.TurnError, Answer: c.reply(), Error: cmp.Or(l.Error.Message, "codex says that the turn failed")})
	case "error":
		if r, ok := parseRetry(l.Message); ok {
			c.retried = true
			t.Retry(r)
			return
		}
		t.Notice("warning", talk.NoticeWarning, l.Message)
	case "item.started", "item.updated", "item.completed":
		var item item
		if talk.Decode(l.Item, &item) != nil {
			t.Unknown(l.Type, b)
			return
		}
		c.item(item, phases[l.Type], b, t)
	default:
		t.Unknown(l.Type, b)
	}
}

var phases = map[string]agent.ActionPhase{
	"item.started":   agent.ActionStarted,
	"item.updated":   agent.ActionUpdated,
	"item.completed": agent.ActionCompleted,
}

// reconnecting is how codex tells a retry. What follows in brackets is new.
var reconnecting = talk.Lazily(`^Reconnecting\.\.\. (\d+)/(\d+)(?:\s+\((.*)\))?`)

func parseRetry(text string) (agent.Retry, bool) {
	m := reconnecting().FindStringSubmatch(text)
	if m == nil {
		return agent.Retry{}, false
	}
	attempt, _ := strconv.Atoi(m[1])
	most, _ := strconv.Atoi(m[2])
	return agent.Retry{Attempt: attempt, Max: most, Reason: m[3]}, true
}

// endTurn ends the action of the turn, which codex itself does not.
func (c *lines) endTurn(t *talk.Turn, ok bool) {
	id := fmt.Sprintf("turn_%d", c.turns-1)
	if t.Running(id) {
		t.Action(agent.Action{ID: id, Phase: agent.ActionCompleted, OK: new(ok)})
	}
}

func (c *lines) item(i item, phase agent.ActionPhase, line []byte, t *talk.Turn) {
	done := phase == agent.ActionCompleted
	a := agent.Action{ID: i.ID, Phase: phase, Status: i.Status}
	switch i.Type {
	case "agent_message":
		if done {
			c.message(i, t)
		}
		return
	case "reasoning":
		if done {
			t.Reasoning(agent.Reasoning{ID: i.ID, Text: i.Text})
		}
		return
	case "error":
		if done {
			t.Notice("warning", talk.NoticeWarning, i.Message)
		}
		return
	case "todo_list":
		plan := agent.Plan{ID: i.ID, Items: []agent.PlanItem{}}
		for _, item := range i.Items {
			status := "pending"
			if item.Completed {
				status = "completed"
			}
			plan.Items = append(plan.Items, agent.PlanItem{Text: item.Text, Status: status})
		}
		t.Plan(plan)
		return
	case "command_execution":
		a.Kind, a.Title = agent.ActionCommand, talk.RelativeCommand(i.Command, c.cwd)
		a.ExitCode, a.Output = i.ExitCode, i.Output
		if done {
			a.OK = new(i.Status == "completed" && (i.ExitCode == nil || *i.ExitCode == 0))
		}
	case "file_change":
		a.Kind = agent.ActionFileChange
		var paths []string
		for _, ch := range i.Changes {
			path := talk.Relative(ch.Path, c.cwd)
			paths = append(paths, path)
			a.Changes = append(a.Changes, agent.FileChange{Path: path, Kind: ch.Kind})
		}
		a.Title = strings.Join(paths, ", ")
		if done {
			a.OK = new(i.Status == "completed")
		}
	case "mcp_tool_call":
		a.Kind, a.Title, a.Tool = agent.ActionMCP, i.Server+"."+i.Tool, i.Tool
		if !talk.IsNull(i.Arguments) {
			a.Input = i.Arguments
		}
		if done {
			a.OK = new(i.Status == "completed" && talk.IsNull(i.Error))
			a.Output, a.Message = mcpResult(i)
		}
	case "web_search":
		a.Kind, a.Title = agent.ActionWebSearch, cmp.Or(i.Query, "web search")
		if done {
			a.OK = new(true)
		}
	case "collab_tool_call":
		a.Kind, a.Tool, a.Title = agent.ActionSubagent, i.Type, talk.Title(cmp.Or(i.Prompt, i.Tool, "subagent"))
		if done {
			a.OK = new(i.Status != "failed")
		}
	default:
		t.Unknown("item "+i.Type, line)
		return
	}
	t.Action(a)
}

// message keeps the answer: the last one that says it is final, else the last
// that says nothing about itself. A retry repeats what came before it.
func (c *lines) message(i item, t *talk.Turn) {
	m := agent.Message{ID: i.ID, Text: i.Text}
	repeated := c.retried && i.Text == c.plain && i.Phase == ""
	c.retried = false
	switch i.Phase {
	case "final_answer":
		c.final, m.Phase = i.Text, agent.PhaseFinal
	case "":
		c.plain = i.Text
	default:
		m.Phase = agent.PhaseCommentary
	}
	if !repeated {
		t.Message(m)
	}
}

func (c *lines) reply() string { return cmp.Or(c.final, c.plain) }

// mcpResult is the text of a result, and the message of an error.
func mcpResult(i item) (output, message string) {
	var r struct {
		Content json.RawMessage `json:"content"`
	}
	_ = talk.Decode(i.Result, &r)
	var e struct {
		Message string `json:"message"`
	}
	if !talk.IsNull(i.Error) && talk.Decode(i.Error, &e) == nil {
		message = e.Message
	}
	return talk.Text(r.Content), message
}

func (c *lines) Ended(x talk.Exit, t *talk.Turn) {
	switch {
	case x.Signal != "" || x.Code != 0:
		t.Finish(talk.FailedExit("codex exec", x, c.reply()))
	case !t.SessionKnown():
		t.Finish(talk.Result{Outcome: spool.TurnError, Class: agent.ClassProtocol, Answer: c.reply(),
			Error: "codex exec finished but no session_id/thread_id was captured"})
	default:
		t.Finish(talk.Result{Outcome: spool.TurnOK, Answer: c.reply()})
	}
}
