// Package takopi shows the log of an agent's run as takopi would tell it.
package takopi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// Event is an event in the model of takopi: started, action, completed.
// A turn of ours is a run there.
type Event struct {
	Type   string `json:"type"`
	Engine string `json:"engine"`
	// Resume is that of started and completed.
	Resume *sessions.Token `json:"resume,omitempty"`
	Title  string          `json:"title,omitempty"`
	Meta   json.RawMessage `json:"meta,omitempty"`

	Action  *Action `json:"action,omitempty"`
	Phase   string  `json:"phase,omitempty"`
	OK      *bool   `json:"ok,omitempty"` // of actions, and of completed always
	Message string  `json:"message,omitempty"`
	Level   string  `json:"level,omitempty"`

	Answer *string         `json:"answer,omitempty"` // of completed, always
	Error  string          `json:"error,omitempty"`
	Usage  json.RawMessage `json:"usage,omitempty"`
}

// Action is what an action event of takopi is about.
type Action struct {
	ID     string         `json:"id"`
	Kind   string         `json:"kind"`
	Title  string         `json:"title"`
	Detail map[string]any `json:"detail"`
}

// The types of takopi's events.
const (
	Started   = "started"
	Acted     = "action"
	Completed = "completed"
)

// View shows the log of a run as takopi would have told it, event by event:
// the same events in give the same events out. What takopi has no word for is
// left out. It is not safe for concurrent use.
type View struct {
	engine string
	token  *sessions.Token
	start  Event // what started says in every turn
	turns  map[spool.Seq]*turnState
	notes  int
	thinks int
}

// turnState is what was told of a turn.
type turnState struct {
	started   bool
	completed bool
	plans     map[string]bool
}

// New returns a view of the log of a run of that agent.
func New(name string) *View {
	return &View{engine: name, turns: make(map[spool.Seq]*turnState)}
}

// Project returns what takopi would tell of an event: nothing, one event, or
// a few. Events must come in order, from the first one of the run.
func (v *View) Project(e spool.Event) []Event {
	if e.Turn == 0 {
		return nil // takopi has no events between turns
	}
	t := v.turns[e.Turn]
	if t == nil {
		t = &turnState{plans: make(map[string]bool)}
		v.turns[e.Turn] = t
	}
	if t.completed {
		return nil
	}
	if e.Kind == spool.KindStarted {
		return v.started(e, t)
	}
	out := v.project(e, t)
	if len(out) > 0 && !t.started && v.token != nil {
		// A later turn of the run: there it is a run, with a start.
		t.started = true
		out = append([]Event{v.start}, out...)
	}
	return out
}

func (v *View) started(e spool.Event, t *turnState) []Event {
	var s agent.Started
	if t.started || json.Unmarshal(e.Data, &s) != nil || s.Resume == "" {
		return nil
	}
	t.started = true
	v.token = &sessions.Token{Engine: v.engine, Value: s.Resume}
	v.start = Event{Type: Started, Engine: v.engine, Resume: v.token, Title: s.Title}
	if v.engine == agent.Claude {
		var detail struct {
			KeySource string          `json:"api_key_source"`
			Style     string          `json:"output_style"`
			MCP       json.RawMessage `json:"mcp_servers"`
		}
		_ = talk.Decode(s.Detail, &detail)
		meta := map[string]any{"cwd": s.Cwd, "tools": s.Tools, "permissionMode": s.Mode, "output_style": detail.Style, "apiKeySource": detail.KeySource}
		if !talk.IsNull(detail.MCP) {
			meta["mcp_servers"] = detail.MCP
		}
		if b, err := json.Marshal(meta); err == nil {
			v.start.Meta = b
		}
	}
	return []Event{v.start}
}

func (v *View) project(e spool.Event, t *turnState) []Event {
	switch e.Kind {
	case agent.KindAction:
		return v.action(e)
	case agent.KindMessage:
		var m agent.Message
		if v.engine != agent.Codex || json.Unmarshal(e.Data, &m) != nil || m.Phase != agent.PhaseCommentary || m.Delta || m.History {
			return nil
		}
		return v.note(m.ID, m.Text, agent.ActionCompleted, new(true))
	case agent.KindReasoning:
		return v.reasoning(e)
	case agent.KindPlan:
		return v.plan(e, t)
	case agent.KindRetry:
		return v.retry(e)
	case spool.KindNotice:
		var n spool.Notice
		if json.Unmarshal(e.Data, &n) != nil || n.Level != "warning" && n.Level != "error" {
			return nil
		}
		switch n.Code {
		case talk.NoticeUnparsed, talk.NoticeUnknown, talk.NoticeLineTooLong:
			return nil // takopi has them in its own log only
		}
		return []Event{v.warning(n.Text)}
	case spool.KindDone:
		return v.completed(e, t)
	}
	return nil
}

// note is an action that only says something.
func (v *View) note(id, title string, phase agent.ActionPhase, ok *bool) []Event {
	return []Event{{Type: Acted, Engine: v.engine, Phase: string(phase), OK: ok,
		Action: &Action{ID: id, Kind: "note", Title: title, Detail: map[string]any{}}}}
}

func (v *View) warning(text string) Event {
	id := fmt.Sprintf("%s.note.%d", v.engine, v.notes)
	v.notes++
	return Event{Type: Acted, Engine: v.engine, Phase: "completed", OK: new(false), Level: "warning",
		Action: &Action{ID: id, Kind: "warning", Title: text, Detail: map[string]any{}}}
}

func (v *View) reasoning(e spool.Event) []Event {
	var r agent.Reasoning
	if json.Unmarshal(e.Data, &r) != nil || r.Delta || r.History {
		return nil
	}
	switch v.engine {
	case agent.Codex:
		return v.note(r.ID, r.Text, agent.ActionCompleted, new(true))
	case agent.Claude:
		id := fmt.Sprintf("claude.thinking.%d", v.thinks)
		v.thinks++
		return v.note(id, r.Text, agent.ActionCompleted, new(true))
	}
	return nil
}

// plan is the todo list of codex. Those of others are calls of a tool.
func (v *View) plan(e spool.Event, t *turnState) []Event {
	var p agent.Plan
	if v.engine != agent.Codex || json.Unmarshal(e.Data, &p) != nil || p.History {
		return nil
	}
	done, next := 0, ""
	for _, item := range p.Items {
		if item.Status == "completed" {
			done++
		} else if next == "" {
			next = item.Text
		}
	}
	title := fmt.Sprintf("todo %d/%d", done, len(p.Items))
	if next != "" {
		title += ": " + next
	}
	phase := agent.ActionStarted
	id := cmp.Or(p.ID, "codex.todo")
	if t.plans[id] {
		phase = agent.ActionUpdated
	}
	t.plans[id] = true
	out := v.note(id, title, phase, nil)
	out[0].Action.Detail = map[string]any{"done": done, "total": len(p.Items)}
	return out
}

func (v *View) retry(e spool.Event) []Event {
	var r agent.Retry
	if json.Unmarshal(e.Data, &r) != nil {
		return nil
	}
	phase := agent.ActionStarted
	if r.Attempt > 1 {
		phase = agent.ActionUpdated
	}
	out := v.note(v.engine+".reconnect", fmt.Sprintf("Reconnecting... %d/%d", r.Attempt, r.Max), phase, nil)
	out[0].Level = "info"
	detail := map[string]any{"attempt": r.Attempt, "max": r.Max}
	if r.Reason != "" {
		detail["reason"] = r.Reason
	}
	out[0].Action.Detail = detail
	return out
}

// kinds are its words for ours; the others are the same.
var kinds = map[agent.ActionKind]string{
	agent.ActionMCP: "tool", agent.ActionFetch: "web_search", agent.ActionRead: "tool", agent.ActionSearch: "tool",
	agent.ActionSkill: "tool", agent.ActionOther: "note",
}

func (v *View) action(e spool.Event) []Event {
	var a agent.Action
	if json.Unmarshal(e.Data, &a) != nil || a.Synthetic || a.History {
		return nil
	}
	done := a.Phase == agent.ActionCompleted
	switch {
	case a.Kind == agent.ActionTurn && a.Phase != agent.ActionStarted: // it never ends there
		return nil
	case v.engine == agent.Codex && a.Kind == agent.ActionFileChange && !done:
		return nil
	case v.engine == agent.Codex && a.Kind == agent.ActionSubagent:
		return nil
	case a.Phase == agent.ActionUpdated && v.engine != agent.Codex:
		return nil
	}
	kind := kinds[a.Kind]
	if kind == "" {
		kind = string(a.Kind)
	}
	if v.engine == agent.OpenCode && a.Kind == agent.ActionSubagent {
		kind = "tool"
	}
	out := Event{Type: Acted, Engine: v.engine, Phase: string(a.Phase), Message: a.Message, Level: a.Level,
		Action: &Action{ID: a.ID, Kind: kind, Title: a.Title, Detail: v.detail(&a)}}
	if done {
		out.OK = a.OK
	}
	return []Event{out}
}

// maxOpenCodeOutput is how much takopi keeps of the output of opencode's tools.
const maxOpenCodeOutput = 500

func (v *View) detail(a *agent.Action) map[string]any {
	d := make(map[string]any)
	done := a.Phase == agent.ActionCompleted
	if len(a.Changes) > 0 {
		var changes []map[string]string
		for _, c := range a.Changes {
			kind := c.Kind
			if v.engine != agent.Codex { // it never looks closer
				kind = "update"
			}
			changes = append(changes, map[string]string{"path": c.Path, "kind": kind})
		}
		d["changes"] = changes
	}
	switch v.engine {
	case agent.Codex:
		if a.Kind == agent.ActionCommand && done {
			d["exit_code"] = a.ExitCode
		}
		if a.Status != "" {
			d["status"] = a.Status
		}
	case agent.OpenCode:
		if done && a.Output != "" {
			d["output"] = cut(a.Output, maxOpenCodeOutput)
		}
		if a.ExitCode != nil {
			d["exit_code"] = *a.ExitCode
		}
	default:
		if !talk.IsNull(a.Input) {
			d["input"] = a.Input
		}
		if done {
			d["result"], d["result_len"] = a.Output, len(a.Output)
			d["is_error"] = a.OK != nil && !*a.OK
		}
	}
	return d
}

// cut shortens a text to so many bytes, and to whole characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

var (
	failedRC = talk.Lazily(` failed \(rc=-?\d+\)\.$`)
	endedBy  = talk.Lazily(`^(.*) was ended by (SIG[A-Z0-9+]+)\.$`)
)

func (v *View) completed(e spool.Event, t *turnState) []Event {
	var d spool.Done
	if json.Unmarshal(e.Data, &d) != nil {
		return nil
	}
	t.completed = true
	var out []Event
	text := d.Error
	if m := endedBy().FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("%s failed (rc=%d).", m[1], -signalNumbers[m[2]])
	}
	if failedRC().MatchString(text) { // it left without a word
		out = append(out, v.warning(text))
	}
	c := Event{Type: Completed, Engine: v.engine, OK: new(d.Outcome == spool.TurnOK), Answer: &d.Answer, Error: text, Resume: v.token}
	if v.token == nil && d.Resume != "" { // asked for, and never seen
		c.Resume = &sessions.Token{Engine: v.engine, Value: d.Resume}
	}
	c.Usage = v.usage(d.Usage)
	return append(out, c)
}

// usage is what takopi passes on: what codex itself says, in its words; ours
// for those who told something; and nothing for opencode.
func (v *View) usage(raw json.RawMessage) json.RawMessage {
	var u agent.Usage
	if talk.IsNull(raw) || v.engine == agent.OpenCode || json.Unmarshal(raw, &u) != nil {
		return nil
	}
	if v.engine != agent.Codex {
		return raw
	}
	s := u.Session
	if s == nil {
		s = u.Turn
	}
	if s == nil {
		return nil
	}
	b, err := json.Marshal(map[string]int64{"input_tokens": s.Input, "cached_input_tokens": s.CacheRead,
		"cache_write_input_tokens": s.CacheWrite, "output_tokens": s.Output, "reasoning_output_tokens": s.Reasoning})
	if err != nil { // numbers always encode
		return nil
	}
	return b
}

// signalNumbers are those a process ends by; negative they are its rc there.
var signalNumbers = map[string]int{
	"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGILL": 4, "SIGTRAP": 5, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9,
	"SIGUSR1": 10, "SIGSEGV": 11, "SIGUSR2": 12, "SIGPIPE": 13, "SIGALRM": 14, "SIGTERM": 15, "SIGXCPU": 24, "SIGXFSZ": 25, "SIGSYS": 31,
}
