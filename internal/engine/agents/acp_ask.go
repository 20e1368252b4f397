package agents

import (
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// acpAsk is a request of the agent that waits for an answer.
type acpAsk struct {
	id      json.RawMessage
	tool    string // the action it is about
	options []spool.AskOption
	form    bool // a form, not a permission
}

// cancelled is the answer when the turn is.
func (a *acpAsk) cancelled() map[string]any {
	if a.form {
		return map[string]any{"action": "cancel"}
	}
	return map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}
}

func (c *acp) request(m rpcMessage, line []byte, t *turn) {
	switch m.Method {
	case "session/request_permission":
		c.permission(m, t)
	case "elicitation/create", "session/elicitation":
		var r struct {
			Message string          `json:"message"`
			URL     string          `json:"url"`
			Schema  json.RawMessage `json:"requestedSchema"`
		}
		_ = lenient(m.Params, &r)
		c.flush(t)
		c.asks[askKey(m.ID)] = acpAsk{id: m.ID, form: true}
		q := []Question{{ID: "answer", Text: strings.TrimSpace(r.Message + " " + r.URL)}}
		t.ask(askKey(m.ID), questionAsk(Questions{Questions: q, Schema: r.Schema}, ""))
	default:
		// Files and terminals are not offered; who asks anyway is told so.
		c.rpc.refuse(m.ID, rpc.CodeMethodNotFound, "spool does not do "+m.Method)
		t.unknown("request "+m.Method, line)
	}
}

func (c *acp) permission(m rpcMessage, t *turn) {
	var r struct {
		Tool    acpTool `json:"toolCall"`
		Options []struct {
			ID   string `json:"optionId"`
			Name string `json:"name"`
			Kind string `json:"kind"`
		} `json:"options"`
	}
	_ = lenient(m.Params, &r)
	ask := acpAsk{id: m.ID, tool: r.Tool.ID}
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
		t.action(a)
		a = t.open[r.Tool.ID] // with what was known before
	}
	c.asks[askKey(m.ID)] = ask
	if c.config.SkipPermissions {
		if _, ok := choose(ask.options, agent.Decision{Choice: agent.Allow}); ok {
			c.reply(askKey(m.ID), agent.Decision{Choice: agent.Allow})
			return
		}
	}
	t.ask(askKey(m.ID), approvalAsk(c.wanted(&r.Tool, a), first(a.Title, "use a tool"), ask.options))
}

// wanted says what a call would do, as far as the agent tells.
func (c *acp) wanted(tool *acpTool, a agent.Action) Approval {
	kind := a.Kind
	if kind == "" {
		kind = agent.ActionTool
	}
	what := Approval{Action: a.ID, Kind: kind, Tool: first(tool.Name, a.Tool), Cwd: c.cwd, Input: a.Input, Changes: a.Changes}
	for _, l := range tool.Locations {
		what.Paths = append(what.Paths, l.Path)
	}
	if len(what.Paths) == 0 {
		for _, f := range a.Changes {
			what.Paths = append(what.Paths, f.Path)
		}
	}
	if kind == agent.ActionCommand {
		var in struct {
			Command json.RawMessage `json:"command"`
			Cmd     json.RawMessage `json:"cmd"`
		}
		_ = lenient(a.Input, &in)
		what.Command = first(commandText(in.Command), commandText(in.Cmd), titleCommand(tool.Title))
	}
	return what
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

func (c *acp) answer(key string, d agent.Decision, t *turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	if !ask.form {
		d = understood(ask.options, d, t)
	}
	c.reply(key, d)
	if d.Choice == agent.DenyStop {
		c.cancel(t)
	}
	return nil
}

// reply answers a request.
func (c *acp) reply(key string, d agent.Decision) {
	ask := c.asks[key]
	delete(c.asks, key)
	if ask.form {
		r := elicited(d)
		delete(r, "_meta")
		if r["content"] == nil {
			delete(r, "content")
		}
		c.rpc.reply(ask.id, r)
		return
	}
	o, ok := choose(ask.options, d)
	if !ok || o.Kind == rejectOnce || o.Kind == rejectAlways {
		c.refused[ask.tool] = true
	}
	if !ok { // no way to say no but to leave it
		c.rpc.reply(ask.id, ask.cancelled())
		return
	}
	c.rpc.reply(ask.id, map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": o.ID}})
}
