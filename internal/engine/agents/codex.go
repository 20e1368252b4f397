package agents

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// codexRunner is OpenAI's codex. On SIGINT it ends with its command; on
// SIGTERM the command lives on in a session of its own.
func codexRunner() *runner {
	return &runner{
		name: Codex, program: "codex", install: "npm install -g @openai/codex",
		signal: syscall.SIGINT, exclusive: true,
		exec: func(s setup) (conversation, error) {
			if bad := findExecOnlyFlag(s.config.Extra); bad != "" {
				return nil, fmt.Errorf("extra argument %q belongs to codex exec, which sets it itself: extra arguments stand before exec", bad)
			}
			return &codexExec{setup: s, codexLines: codexLines{cwd: s.cwd}}, nil
		},
		duplex: newCodexApp,
		can:    []string{"interrupt", "steer", "ask"},
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

// codexExec is codex exec --json.
type codexExec struct {
	oneShot
	setup
	codexLines
}

func (c *codexExec) command() (command, error) {
	argv := append(c.program(Codex), c.config.Extra...)
	if c.config.Profile != "" {
		argv = append(argv, "--profile", c.config.Profile)
	}
	if c.config.Model != "" {
		argv = append(argv, "--model", c.config.Model)
	}
	if c.config.Effort != "" {
		argv = append(argv, "-c", "model_reasoning_effort="+c.config.Effort)
	}
	if c.config.Sandbox != "" {
		argv = append(argv, "-s", c.config.Sandbox)
	}
	if c.config.SkipPermissions {
		argv = append(argv, "--dangerously-bypass-approvals-and-sandbox")
	}
	argv = append(argv, "exec", "--json", "--skip-git-repo-check", "--color=never")
	if c.resume != "" {
		verb := "resume"
		if c.fork {
			verb = "fork"
		}
		argv = append(argv, verb, c.resume)
	}
	return command{argv: append(argv, "-"), stdin: []byte(c.opening.Text)}, nil
}

// program begins the command line of codex in either mode: without
// notifications, which are for people at a terminal.
func (s setup) program(name string) []string {
	argv := []string{first(s.config.Program, name)}
	if name == Codex {
		argv = append(argv, "-c", "notify=[]")
	}
	return argv
}

// codexLines translates the events of codex exec --json.
type codexLines struct {
	cwd     string
	turns   int
	plain   string // last message without a phase
	final   string // last message with phase final_answer
	retried bool   // since the last message
}

// codexItem is the thing an item event is about.
type codexItem struct {
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

func (c *codexLines) line(b []byte, t *turn) {
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
	if err := lenient(b, &l); err != nil {
		t.unparsed(b, err)
		return
	}
	switch l.Type {
	case "thread.started":
		t.session(l.ThreadID)
	case "turn.started":
		c.plain, c.final = "", ""
		t.action(agent.Action{ID: fmt.Sprintf("turn_%d", c.turns), Kind: agent.ActionTurn, Phase: agent.ActionStarted, Title: "turn started"})
		c.turns++
	case "turn.completed":
		c.endTurn(t, true)
		if u := l.Usage; u != nil {
			t.setTotal(agent.Spend{Input: u.Input, CacheRead: u.CacheRead, CacheWrite: u.CacheWrite, Output: u.Output, Reasoning: u.Reasoning})
		}
		t.finish(result{outcome: spool.TurnOK, answer: c.reply()})
	case "turn.failed":
		c.endTurn(t, false)
		t.finish(result{outcome: spool.TurnError, answer: c.reply(), err: first(l.Error.Message, "codex says that the turn failed")})
	case "error":
		if r, ok := codexRetry(l.Message); ok {
			c.retried = true
			t.retry(r)
			return
		}
		t.notice("warning", NoticeWarning, l.Message)
	case "item.started", "item.updated", "item.completed":
		var item codexItem
		if lenient(l.Item, &item) != nil {
			t.unknown(l.Type, b)
			return
		}
		c.item(item, phases[l.Type], b, t)
	default:
		t.unknown(l.Type, b)
	}
}

var phases = map[string]agent.ActionPhase{
	"item.started":   agent.ActionStarted,
	"item.updated":   agent.ActionUpdated,
	"item.completed": agent.ActionCompleted,
}

// reconnecting is how codex tells a retry. What follows in brackets is new.
var reconnecting = lazily(`^Reconnecting\.\.\. (\d+)/(\d+)(?:\s+\((.*)\))?`)

func codexRetry(text string) (agent.Retry, bool) {
	m := reconnecting().FindStringSubmatch(text)
	if m == nil {
		return agent.Retry{}, false
	}
	attempt, _ := strconv.Atoi(m[1])
	most, _ := strconv.Atoi(m[2])
	return agent.Retry{Attempt: attempt, Max: most, Reason: m[3]}, true
}

// endTurn ends the action of the turn, which codex itself does not.
func (c *codexLines) endTurn(t *turn, ok bool) {
	id := fmt.Sprintf("turn_%d", c.turns-1)
	if t.running(id) {
		t.action(agent.Action{ID: id, Phase: agent.ActionCompleted, OK: is(ok)})
	}
}

func (c *codexLines) item(i codexItem, phase agent.ActionPhase, line []byte, t *turn) {
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
			t.reasoning(agent.Reasoning{ID: i.ID, Text: i.Text})
		}
		return
	case "error":
		if done {
			t.notice("warning", NoticeWarning, i.Message)
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
		t.plan(plan)
		return
	case "command_execution":
		a.Kind, a.Title = agent.ActionCommand, relativeCommand(i.Command, c.cwd)
		a.ExitCode, a.Output = i.ExitCode, i.Output
		if done {
			a.OK = is(i.Status == "completed" && (i.ExitCode == nil || *i.ExitCode == 0))
		}
	case "file_change":
		a.Kind = agent.ActionFileChange
		var paths []string
		for _, ch := range i.Changes {
			path := relative(ch.Path, c.cwd)
			paths = append(paths, path)
			a.Changes = append(a.Changes, agent.FileChange{Path: path, Kind: ch.Kind})
		}
		a.Title = strings.Join(paths, ", ")
		if done {
			a.OK = is(i.Status == "completed")
		}
	case "mcp_tool_call":
		a.Kind, a.Title, a.Tool = agent.ActionMCP, i.Server+"."+i.Tool, i.Tool
		if !null(i.Arguments) {
			a.Input = i.Arguments
		}
		if done {
			a.OK = is(i.Status == "completed" && null(i.Error))
			a.Output, a.Message = mcpResult(i)
		}
	case "web_search":
		a.Kind, a.Title = agent.ActionWebSearch, first(i.Query, "web search")
		if done {
			a.OK = yes()
		}
	case "collab_tool_call":
		a.Kind, a.Tool, a.Title = agent.ActionSubagent, i.Type, printable(first(i.Prompt, i.Tool, "subagent"))
		if done {
			a.OK = is(i.Status != "failed")
		}
	default:
		t.unknown("item "+i.Type, line)
		return
	}
	t.action(a)
}

// message keeps the answer: the last one that says it is final, else the last
// that says nothing about itself. A retry repeats what came before it.
func (c *codexLines) message(i codexItem, t *turn) {
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
		t.message(m)
	}
}

func (c *codexLines) reply() string { return first(c.final, c.plain) }

// mcpResult is the text of a result, and the message of an error.
func mcpResult(i codexItem) (output, message string) {
	var r struct {
		Content json.RawMessage `json:"content"`
	}
	_ = lenient(i.Result, &r)
	var e struct {
		Message string `json:"message"`
	}
	if !null(i.Error) && lenient(i.Error, &e) == nil {
		message = e.Message
	}
	return texts(r.Content), message
}

func (c *codexLines) ended(x exit, t *turn) {
	switch {
	case x.signal != "" || x.code != 0:
		t.finish(failedExit("codex exec", x, c.reply()))
	case !t.run.started:
		t.finish(result{outcome: spool.TurnError, class: agent.ClassProtocol, answer: c.reply(),
			err: "codex exec finished but no session_id/thread_id was captured"})
	default:
		t.finish(result{outcome: spool.TurnOK, answer: c.reply()})
	}
}

// failedExit is the result of an agent that left without a last word. What it
// said on standard error is not in the text, only in its class: that may hold
// anything, and has its own place.
func failedExit(tag string, x exit, answer string) result {
	r := result{outcome: spool.TurnError, answer: answer, class: classify(x.stderr, 0),
		err: fmt.Sprintf("%s failed (rc=%d).", tag, x.code)}
	if x.signal != "" {
		r.outcome = spool.TurnCrashed
		r.err = fmt.Sprintf("%s was ended by %s.", tag, x.signal)
	}
	return r
}
