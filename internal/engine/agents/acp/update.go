package acp

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// sessionUpdate is a session/update of any kind.
type sessionUpdate struct {
	Kind      string          `json:"sessionUpdate"`
	MessageID string          `json:"messageId"`
	Content   json.RawMessage `json:"content"`

	// of plans
	Entries json.RawMessage `json:"entries"`
	Plan    struct {
		Entries json.RawMessage `json:"entries"`
	} `json:"plan"`

	// of usage
	Used int64 `json:"used"`
	Size int64 `json:"size"`
	Cost struct {
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
	} `json:"cost"`

	// of state
	State string `json:"state"`
}

// textRun is a message or a thought that comes in pieces.
type textRun struct {
	kind string // of its updates; empty if there is none
	id   string
	text strings.Builder
}

// maxPieces is how much of a message is put together before it is written
// down. What follows is another one.
const maxPieces = 8 << 20

func (c *client) update(params json.RawMessage, line []byte, t *talk.Turn) {
	var p struct {
		Session string          `json:"sessionId"`
		Update  json.RawMessage `json:"update"`
	}
	_ = talk.Decode(params, &p)
	var u sessionUpdate
	if talk.Decode(p.Update, &u) != nil {
		t.Unknown("session/update", line)
		return
	}
	c.replayed = true
	if u.Kind != "state_update" || u.State != "idle" {
		c.active = true
	}
	switch u.Kind {
	case "user_message_chunk", "agent_message_chunk", "agent_thought_chunk":
		c.piece(u, line, t)
	case "user_message", "agent_message", "agent_thought": // whole, from version two on
		c.whole(u, t)
	case "tool_call", "tool_call_update":
		c.tool(p.Update, line, t)
	case "tool_call_content_chunk":
		var chunk struct {
			ID      string          `json:"toolCallId"`
			Content json.RawMessage `json:"content"`
		}
		_ = talk.Decode(p.Update, &chunk)
		if t.Running(chunk.ID) {
			output, _ := toolContent(json.RawMessage("[" + string(chunk.Content) + "]"))
			t.Action(agent.Action{ID: chunk.ID, Phase: agent.ActionUpdated, Output: output})
		}
	case "plan", "plan_update":
		c.plan(u, t)
	case "usage_update":
		t.Context(u.Used, u.Size)
		if u.Cost.Amount > 0 && (u.Cost.Currency == "USD" || u.Cost.Currency == "") {
			t.SetCost(u.Cost.Amount)
		}
	case "state_update":
		// Said before anything was done, it is about the prompt before.
		if u.State == "idle" && !c.loading && c.active {
			var s promptEnd
			_ = talk.Decode(p.Update, &s)
			c.finish(s, t)
		}
	case "notice":
		var n struct {
			Level   string `json:"level"`
			Message string `json:"message"`
			Text    string `json:"text"`
		}
		_ = talk.Decode(p.Update, &n)
		t.Notice(cmp.Or(n.Level, "info"), talk.NoticeWarning, cmp.Or(n.Message, n.Text, talk.Text(u.Content)))
	case "available_commands_update", "current_mode_update", "config_option_update", "session_info_update",
		"terminal_update", "terminal_output_chunk", "plan_removed", "compaction_update", "compaction_summary_chunk":
	default:
		t.Unknown("session/update "+u.Kind, line)
	}
}

// piece adds to what is being said. A message ends where another begins, and
// where something is done: many agents do not name their messages.
func (c *client) piece(u sessionUpdate, line []byte, t *talk.Turn) {
	text, ok := blockText(u.Content)
	if !ok {
		t.Unknown("content of "+u.Kind, line)
		return
	}
	if c.text.kind != u.Kind || c.text.id != u.MessageID || c.text.text.Len()+len(text) > maxPieces {
		c.flush(t)
		c.text.kind, c.text.id = u.Kind, u.MessageID
	}
	c.text.text.WriteString(text)
	if c.loading {
		return
	}
	switch u.Kind {
	case "agent_message_chunk":
		t.Message(agent.Message{ID: u.MessageID, Text: text, Delta: true})
	case "agent_thought_chunk":
		t.Reasoning(agent.Reasoning{ID: u.MessageID, Text: text, Delta: true})
	}
}

// whole takes a message that comes at once, or replaces its pieces.
func (c *client) whole(u sessionUpdate, t *talk.Turn) {
	if talk.IsNull(u.Content) { // only something about it changed
		return
	}
	kind := u.Kind + "_chunk"
	if c.text.kind != kind || c.text.id != u.MessageID {
		c.flush(t)
	}
	c.text.text.Reset()
	c.text.kind, c.text.id = kind, u.MessageID
	if text, ok := blockText(u.Content); ok {
		c.text.text.WriteString(text)
	} else {
		for _, block := range talk.Elements(u.Content) {
			text, _ := blockText(block)
			c.text.text.WriteString(text)
		}
	}
}

// flush writes what has been said.
func (c *client) flush(t *talk.Turn) {
	kind, id, text := c.text.kind, c.text.id, c.text.text.String()
	c.text.kind, c.text.id = "", ""
	c.text.text.Reset()
	if text == "" {
		return
	}
	switch kind {
	case "agent_message_chunk":
		t.Message(agent.Message{ID: id, Text: text, History: c.loading})
	case "agent_thought_chunk":
		t.Reasoning(agent.Reasoning{ID: id, Text: text, History: c.loading})
	case "user_message_chunk":
		if c.loading { // otherwise it is what we said ourselves
			t.Message(agent.Message{ID: id, Role: "user", Text: text, History: true})
		}
	}
}

// blockText is the text of a content block, or what stands for it.
func blockText(v json.RawMessage) (string, bool) {
	var b struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Name     string `json:"name"`
		URI      string `json:"uri"`
		Resource struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"resource"`
	}
	if talk.Decode(v, &b) != nil {
		return "", false
	}
	switch b.Type {
	case "text":
		return b.Text, true
	case "resource_link":
		return fmt.Sprintf("[%s](%s)", cmp.Or(b.Name, b.URI), b.URI), true
	case "resource":
		return cmp.Or(b.Resource.Text, b.Resource.URI), true
	}
	return "", false
}

func (c *client) plan(u sessionUpdate, t *talk.Turn) {
	entries := u.Entries
	if talk.IsNull(entries) {
		entries = u.Plan.Entries
	}
	plan := agent.Plan{Items: []agent.PlanItem{}, History: c.loading}
	for _, raw := range talk.Elements(entries) {
		var e struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		}
		_ = talk.Decode(raw, &e)
		plan.Items = append(plan.Items, agent.PlanItem{Text: e.Content, Status: cmp.Or(e.Status, "pending")})
	}
	t.Plan(plan)
}

// toolCall is a tool call, or what changed about one.
type toolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title"`
	Kind      string          `json:"kind"`
	Status    string          `json:"status"`
	Name      string          `json:"name"`
	Content   json.RawMessage `json:"content"`
	Input     json.RawMessage `json:"rawInput"`
	Output    json.RawMessage `json:"rawOutput"`
	Locations []struct {
		Path string `json:"path"`
	} `json:"locations"`
}

// actionKinds are our words for theirs.
var actionKinds = map[string]agent.ActionKind{
	"execute": agent.ActionCommand, "edit": agent.ActionFileChange, "delete": agent.ActionFileChange, "move": agent.ActionFileChange,
	"read": agent.ActionRead, "search": agent.ActionSearch, "fetch": agent.ActionFetch, "think": agent.ActionNote, "switch_mode": agent.ActionNote,
}

func (c *client) tool(raw json.RawMessage, line []byte, t *talk.Turn) {
	var tool toolCall
	_ = talk.Decode(raw, &tool)
	if tool.ID == "" {
		t.Unknown("session/update without a toolCallId", line)
		return
	}
	if c.loading {
		c.remember(&tool, t)
		return
	}
	if !t.Running(tool.ID) {
		c.flush(t) // what was said before it is a message
	}
	t.Action(c.act(&tool))
}

// act makes an action of a tool call.
func (c *client) act(tool *toolCall) agent.Action {
	a := agent.Action{ID: tool.ID, Kind: actionKinds[tool.Kind], Phase: agent.ActionUpdated, Title: talk.Title(tool.Title), Tool: tool.Name, Status: tool.Status}
	if a.Kind == "" && tool.Kind != "" {
		a.Kind = agent.ActionTool
	}
	if !talk.IsNull(tool.Input) {
		a.Input = tool.Input
	}
	a.Output, a.Changes = toolContent(tool.Content)
	for i := range a.Changes {
		a.Changes[i].Path = talk.Relative(a.Changes[i].Path, c.Cwd)
		if tool.Kind == "delete" || tool.Kind == "move" {
			a.Changes[i].Kind = tool.Kind
		}
	}
	if a.Output == "" && !talk.IsNull(tool.Output) {
		a.Output = rawText(tool.Output)
	}
	switch tool.Status {
	case "completed":
		a.Phase, a.OK = agent.ActionCompleted, new(true)
		switch { // some agents call these completed, too
		case c.refused[tool.ID]:
			a.OK, a.Message = new(false), "denied"
		case c.stopped:
			a.OK, a.Message = new(false), "cancelled"
		}
	case "failed", "cancelled":
		a.Phase, a.OK = agent.ActionCompleted, new(false)
	}
	return a
}

// toolContent reads what a tool call shows: text, and changes of files.
func toolContent(content json.RawMessage) (output string, changes []agent.FileChange) {
	var parts []string
	for _, raw := range talk.Elements(content) {
		var part struct {
			Type    string          `json:"type"`
			Content json.RawMessage `json:"content"`
			Path    string          `json:"path"`
			Old     string          `json:"oldText"`
			New     string          `json:"newText"`
		}
		_ = talk.Decode(raw, &part)
		switch part.Type {
		case "content":
			if text, ok := blockText(part.Content); ok && text != "" {
				parts = append(parts, text)
			}
		case "diff":
			kind := "update"
			if part.Old == "" {
				kind = "add"
			}
			changes = append(changes, agent.FileChange{Path: part.Path, Kind: kind, Diff: talk.LineDiff(part.Old, part.New)})
		}
	}
	return strings.Join(parts, "\n"), changes
}

// rawText shows a raw result: a string as it is, else as JSON.
func rawText(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

// remember keeps a tool call of the history until it is known how it ended:
// it is over, so it is told once.
func (c *client) remember(tool *toolCall, t *talk.Turn) {
	c.flush(t)
	known, ok := c.past[tool.ID]
	if !ok {
		c.past[tool.ID] = tool
		c.order = append(c.order, tool.ID)
		return
	}
	known.Title = cmp.Or(tool.Title, known.Title)
	known.Kind = cmp.Or(tool.Kind, known.Kind)
	known.Status = cmp.Or(tool.Status, known.Status)
	known.Name = cmp.Or(tool.Name, known.Name)
	for _, m := range []struct{ to, from *json.RawMessage }{{&known.Content, &tool.Content}, {&known.Input, &tool.Input}, {&known.Output, &tool.Output}} {
		if !talk.IsNull(*m.from) {
			*m.to = *m.from
		}
	}
	if known.Status == "completed" || known.Status == "failed" {
		c.recall(tool.ID, t)
	}
}

func (c *client) recall(id string, t *talk.Turn) {
	tool, ok := c.past[id]
	if !ok {
		return
	}
	delete(c.past, id)
	a := c.act(tool)
	a.Phase, a.History = agent.ActionCompleted, true
	t.Action(a)
}

// endHistory ends what session/load repeated.
func (c *client) endHistory(t *talk.Turn) {
	if !c.loading {
		return
	}
	c.flush(t)
	for _, id := range c.order {
		c.recall(id, t)
	}
	c.order = nil
	c.loading = false
}
