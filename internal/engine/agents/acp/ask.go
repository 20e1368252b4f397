package acp

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// pendingAsk is a request of the agent that waits for an answer.
type pendingAsk struct {
	id      json.RawMessage
	tool    string // the action it is about
	options []spool.AskOption
	form    bool // a form, not a permission
}

// cancelled is the answer when the turn is.
func (a *pendingAsk) cancelled() map[string]any {
	if a.form {
		return map[string]any{"action": "cancel"}
	}
	return map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}
}

func (c *client) request(m talk.Message, line []byte, t *talk.Turn) {
	switch m.Method {
	case "session/request_permission":
		c.permission(m, t)
	case "elicitation/create", "session/elicitation":
		var r struct {
			Message string          `json:"message"`
			URL     string          `json:"url"`
			Schema  json.RawMessage `json:"requestedSchema"`
		}
		_ = talk.Decode(m.Params, &r)
		c.flush(t)
		c.asks[talk.RequestKey(m.ID)] = pendingAsk{id: m.ID, form: true}
		q := []agent.Question{{ID: "answer", Text: strings.TrimSpace(r.Message + " " + r.URL)}}
		t.Ask(talk.RequestKey(m.ID), talk.QuestionAsk(agent.Questions{Questions: q, Schema: r.Schema}, ""))
	default:
		// We offer no files and terminals, and refuse requests for them.
		c.rpc.Refuse(m.ID, rpc.CodeMethodNotFound, "spool does not do "+m.Method)
		t.Unknown("request "+m.Method, line)
	}
}

func (c *client) permission(m talk.Message, t *talk.Turn) {
	var r struct {
		Tool    toolCall `json:"toolCall"`
		Options []struct {
			ID   string `json:"optionId"`
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	_ = talk.Decode(m.Params, &r)
	ask := pendingAsk{id: m.ID, tool: r.Tool.ID}
	for _, o := range r.Options {
		ask.options = append(ask.options, spool.AskOption{ID: o.ID, Label: o.Name, Kind: o.Kind})
	}
	// Some agents tell of a call only here.
	c.flush(t)
	a := c.act(&r.Tool)
	if a.Phase == agent.ActionCompleted {
		a.Phase, a.OK = agent.ActionUpdated, nil
	}
	if r.Tool.ID != "" {
		t.Action(a)
		a = t.RunningAction(r.Tool.ID) // with what was known before
	}
	c.asks[talk.RequestKey(m.ID)] = ask
	if c.Config.SkipPermissions {
		if _, ok := talk.Choose(ask.options, agent.Decision{Choice: agent.Allow}); ok {
			c.reply(talk.RequestKey(m.ID), agent.Decision{Choice: agent.Allow})
			return
		}
	}
	t.Ask(talk.RequestKey(m.ID), talk.ApprovalAsk(c.wanted(&r.Tool, a), cmp.Or(a.Title, "use a tool"), ask.options))
}

// wanted says what a call would do, as far as the agent tells.
func (c *client) wanted(tool *toolCall, a agent.Action) agent.Approval {
	kind := a.Kind
	if kind == "" {
		kind = agent.ActionTool
	}
	if len(a.Changes) > 0 && kind != agent.ActionCommand {
		kind = agent.ActionFileChange // whatever kind the agent calls it
	}
	what := agent.Approval{Action: a.ID, Kind: kind, Tool: cmp.Or(tool.Name, a.Tool), Cwd: c.Cwd, Input: a.Input, Changes: a.Changes}
	for _, l := range tool.Locations {
		what.Paths = append(what.Paths, l.Path)
	}
	for _, f := range a.Changes {
		same := func(path string) bool { return talk.Relative(path, c.Cwd) == f.Path }
		if !slices.ContainsFunc(what.Paths, same) {
			what.Paths = append(what.Paths, f.Path)
		}
	}
	if kind == agent.ActionCommand {
		what.Command = cmp.Or(inputCommand(a.Input), titleCommand(tool.Title))
	}
	return what
}

// inputCommand returns the command line in the input of a tool call. All that
// the input may mean is in the line, so that a rule judges all of it.
func inputCommand(input json.RawMessage) string {
	var in struct {
		Command json.RawMessage `json:"command"`
		Cmd     json.RawMessage `json:"cmd"`
		Args    []string        `json:"args"`
	}
	_ = talk.Decode(input, &in)
	line, other := talk.CommandText(in.Command), talk.CommandText(in.Cmd)
	if line == "" || other != "" && other != line {
		line = strings.TrimPrefix(line+"\n"+other, "\n")
	}
	if line != "" && len(in.Args) > 0 {
		line += " " + talk.QuoteArgs(in.Args)
	}
	return line
}

// titleCommand reads the command in a title, where that is all there is. One
// that may be shortened is none: a rule must not allow what it does not see.
func titleCommand(title string) string {
	title = strings.TrimSpace(title)
	if len(title) > 1 && strings.HasPrefix(title, "`") && strings.HasSuffix(title, "`") {
		title = title[1 : len(title)-1]
	}
	if strings.Contains(title, "…") || strings.Contains(title, "...") || strings.Contains(title, "`") {
		return ""
	}
	return title
}

func (c *client) Answer(key string, d agent.Decision, t *talk.Turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	if !ask.form {
		d = talk.Understood(ask.options, d, t)
	}
	c.reply(key, d)
	if d.Choice == agent.DenyStop {
		c.cancel(t)
	}
	return nil
}

// reply answers a request.
func (c *client) reply(key string, d agent.Decision) {
	ask := c.asks[key]
	delete(c.asks, key)
	if ask.form {
		r := talk.FormAnswer(d)
		delete(r, "_meta")
		if r["content"] == nil {
			delete(r, "content")
		}
		c.rpc.Reply(ask.id, r)
		return
	}
	o, ok := talk.Choose(ask.options, d)
	if !ok || o.Kind == talk.RejectOnce || o.Kind == talk.RejectAlways {
		c.refused[ask.tool] = true
	}
	if !ok { // no way to say no but to leave it
		c.rpc.Reply(ask.id, ask.cancelled())
		return
	}
	c.rpc.Reply(ask.id, map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": o.ID}})
}
