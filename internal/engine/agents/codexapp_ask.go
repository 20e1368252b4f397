package agents

import (
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// codexAsk is a request of codex that waits for an answer.
type codexAsk struct {
	id      json.RawMessage
	method  string
	options []spool.AskOption
	// decisions are codex's words for the options.
	decisions map[string]json.RawMessage
	questions []Question
	wanted    json.RawMessage // permissions that were asked for
}

// codexRequest holds the parameters of the requests we know.
type codexRequest struct {
	Thread    string            `json:"threadId"`
	Item      string            `json:"itemId"`
	Call      string            `json:"callId"` // in requests of older servers
	Kind      string            `json:"kind"`
	Reason    string            `json:"reason"`
	Command   json.RawMessage   `json:"command"`
	Cwd       string            `json:"cwd"`
	GrantRoot string            `json:"grantRoot"`
	Available []json.RawMessage `json:"availableDecisions"`

	Permissions json.RawMessage `json:"permissions"`
	Questions   []struct {
		ID       string `json:"id"`
		Header   string `json:"header"`
		Question string `json:"question"`
		Secret   bool   `json:"isSecret"`
		Options  []struct {
			Label       string `json:"label"`
			Description string `json:"description"`
		} `json:"options"`
	} `json:"questions"`

	Server  string          `json:"serverName"`
	Message string          `json:"message"`
	Mode    string          `json:"mode"`
	URL     string          `json:"url"`
	Schema  json.RawMessage `json:"requestedSchema"`

	Files map[string]json.RawMessage `json:"fileChanges"` // older servers
}

// codexDefault are the decisions of an approval that does not list them.
var codexDefault = []json.RawMessage{
	json.RawMessage(`"accept"`), json.RawMessage(`"acceptForSession"`), json.RawMessage(`"decline"`), json.RawMessage(`"cancel"`),
}

func (c *codexApp) request(m rpcMessage, t *turn) {
	var r codexRequest
	_ = lenient(m.Params, &r)
	ask := codexAsk{id: m.ID, method: m.Method}
	var a spool.Ask
	switch m.Method {
	case "item/commandExecution/requestApproval", "execCommandApproval":
		a = c.askCommand(&ask, &r)
	case "item/fileChange/requestApproval", "applyPatchApproval":
		a = c.askChange(&ask, &r)
	case "item/permissions/requestApproval":
		ask.wanted = r.Permissions
		ask.offer([]json.RawMessage{json.RawMessage(`"accept"`), json.RawMessage(`"acceptForSession"`), json.RawMessage(`"decline"`)})
		a = approvalAsk(Approval{Action: r.Item, Kind: ApprovePermissions, Cwd: r.Cwd, Reason: r.Reason, Input: r.Permissions},
			first(r.Reason, "codex asks for more permissions"), ask.options)
	case "item/tool/requestUserInput":
		q := Questions{Action: r.Item}
		for _, one := range r.Questions {
			question := Question{ID: one.ID, Header: one.Header, Text: one.Question, Secret: one.Secret}
			for _, o := range one.Options {
				question.Options = append(question.Options, spool.AskOption{ID: o.Label, Label: o.Label})
			}
			q.Questions = append(q.Questions, question)
		}
		ask.questions = q.Questions
		a = questionAsk(q, "")
	case "mcpServer/elicitation/request":
		ask.questions = []Question{{ID: "answer", Header: r.Server, Text: strings.TrimSpace(r.Message + " " + r.URL)}}
		a = questionAsk(Questions{Questions: ask.questions, Schema: r.Schema}, "")
	default:
		c.rpc.refuse(m.ID, rpc.CodeMethodNotFound, "spool does not do "+m.Method)
		t.unknown("request "+m.Method, m.Params)
		return
	}
	c.asks[askKey(m.ID)] = ask
	t.ask(askKey(m.ID), a)
}

func (c *codexApp) askCommand(ask *codexAsk, r *codexRequest) spool.Ask {
	available := r.Available
	if len(available) == 0 {
		available = codexDefault
	}
	ask.offer(available)
	line := commandText(r.Command)
	return approvalAsk(Approval{Action: first(r.Item, r.Call), Kind: agent.ActionCommand, Tool: "shell", Command: line, Cwd: r.Cwd, Reason: r.Reason},
		first(relativeCommand(line, c.codexLines.cwd), r.Reason, "run a command"), ask.options)
}

func (c *codexApp) askChange(ask *codexAsk, r *codexRequest) spool.Ask {
	ask.offer(codexDefault)
	what := c.items[r.Item]
	for path := range r.Files {
		what.paths = append(what.paths, path)
		what.changes = append(what.changes, agent.FileChange{Path: path})
	}
	paths := what.paths
	if r.GrantRoot != "" {
		paths = append(paths, r.GrantRoot)
	}
	var names []string
	for _, f := range what.changes {
		names = append(names, f.Path)
	}
	return approvalAsk(Approval{Action: first(r.Item, r.Call), Kind: agent.ActionFileChange, Tool: "apply_patch", Paths: paths,
		Reason: r.Reason, Changes: what.changes}, first(strings.Join(names, ", "), r.Reason, "change files"), ask.options)
}

// codexOptions are the decisions we can name.
var codexOptions = map[string]spool.AskOption{
	"accept":                        {Label: "allow", Kind: allowOnce},
	"acceptForSession":              {Label: "allow for this session", Kind: allowAlways},
	"acceptWithExecpolicyAmendment": {Label: "allow, and always allow commands that begin so", Kind: allowAlways},
	"applyNetworkPolicyAmendment":   {Label: "change what may be reached in the network", Kind: allowAlways},
	"decline":                       {Label: "deny", Kind: rejectOnce},
	"cancel":                        {Label: "deny and stop", Kind: rejectOnce},
}

// offer makes options of decisions. To decline is always possible.
func (ask *codexAsk) offer(decisions []json.RawMessage) {
	ask.decisions = make(map[string]json.RawMessage)
	add := func(raw json.RawMessage) {
		name := decisionName(raw)
		if _, twice := ask.decisions[name]; name == "" || twice {
			return
		}
		o := codexOptions[name]
		o.ID = name
		if o.Label == "" {
			o.Label = name
		}
		ask.decisions[name] = raw
		if name == "decline" && len(ask.options) > 0 && ask.options[len(ask.options)-1].ID == "cancel" {
			// The milder denial first: it is what a plain "deny" means.
			last := len(ask.options) - 1
			ask.options = append(ask.options[:last], o, ask.options[last])
			return
		}
		ask.options = append(ask.options, o)
	}
	for _, raw := range decisions {
		add(raw)
	}
	add(json.RawMessage(`"decline"`))
}

// decisionName is that of a decision, which is a name or an object with one
// member of that name.
func decisionName(raw json.RawMessage) string {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return name
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) == nil && len(object) == 1 {
		for name = range object {
			return name
		}
	}
	return ""
}

func (c *codexApp) answer(key string, d agent.Decision, t *turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	delete(c.asks, key)
	if ask.questions == nil {
		d = understood(ask.options, d, t)
	}
	switch ask.method {
	case "item/tool/requestUserInput":
		answers := make(map[string]any)
		if !declined(d) {
			for id, a := range answersTo(ask.questions, d) {
				answers[id] = map[string]any{"answers": []string{a}}
			}
		}
		c.rpc.reply(ask.id, map[string]any{"answers": answers})
	case "mcpServer/elicitation/request":
		c.rpc.reply(ask.id, elicited(d))
	case "item/permissions/requestApproval":
		c.rpc.reply(ask.id, ask.granted(d))
	case "execCommandApproval", "applyPatchApproval":
		c.rpc.reply(ask.id, map[string]any{"decision": oldDecision(d)})
	default:
		c.rpc.reply(ask.id, map[string]any{"decision": ask.decision(d)})
	}
	return nil
}

// decision is codex's word for ours.
func (ask *codexAsk) decision(d agent.Decision) json.RawMessage {
	switch d.Choice {
	case agent.DenyStop:
		return json.RawMessage(`"cancel"`)
	case agent.Deny:
		return json.RawMessage(`"decline"`)
	}
	if o, ok := choose(ask.options, d); ok {
		return ask.decisions[o.ID]
	}
	return json.RawMessage(`"decline"`)
}

// granted gives the permissions that were asked for, or none.
func (ask *codexAsk) granted(d agent.Decision) map[string]any {
	scope, grant := "turn", map[string]json.RawMessage{}
	o, _ := choose(ask.options, d)
	if o.Kind == allowOnce || o.Kind == allowAlways {
		_ = lenient(ask.wanted, &grant)
		for k, v := range grant {
			if null(v) {
				delete(grant, k)
			}
		}
	}
	if o.Kind == allowAlways {
		scope = "session"
	}
	return map[string]any{"permissions": grant, "scope": scope}
}

// elicited answers the form of a tool server.
func elicited(d agent.Decision) map[string]any {
	if declined(d) {
		action := "decline"
		if d.Choice == agent.DenyStop {
			action = "cancel"
		}
		return map[string]any{"action": action, "content": nil, "_meta": nil}
	}
	var content any = map[string]string{}
	switch {
	case len(d.Answers) > 0:
		content = d.Answers
	case len(d.Input) > 0:
		content = d.Input
	case d.Choice != agent.Allow:
		content = map[string]string{"answer": d.Choice}
	}
	return map[string]any{"action": "accept", "content": content, "_meta": nil}
}

// oldDecision is what servers before the items understand.
func oldDecision(d agent.Decision) any {
	switch d.Choice {
	case agent.Allow, "accept":
		return "approved"
	case agent.AllowSession, "acceptForSession":
		return "approved_for_session"
	case agent.DenyStop, "cancel":
		return "abort"
	}
	return map[string]any{"denied": map[string]string{"rejection": first(d.Message, "denied")}}
}
