package codex

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// pendingAsk is a request of codex that waits for an answer.
type pendingAsk struct {
	id      json.RawMessage
	method  string
	options []spool.AskOption
	// decisions are codex's words for the options.
	decisions map[string]json.RawMessage
	questions []agent.Question
	wanted    json.RawMessage // permissions that were asked for
}

// askParams holds the parameters of the requests we know.
type askParams struct {
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

// defaultDecisions are the decisions of an approval that does not list them.
var defaultDecisions = []json.RawMessage{
	json.RawMessage(`"accept"`), json.RawMessage(`"acceptForSession"`), json.RawMessage(`"decline"`), json.RawMessage(`"cancel"`),
}

func (c *appServer) request(m talk.Message, t *talk.Turn) {
	var r askParams
	_ = talk.Decode(m.Params, &r)
	ask := pendingAsk{id: m.ID, method: m.Method}
	var a spool.Ask
	switch m.Method {
	case "item/commandExecution/requestApproval", "execCommandApproval":
		a = c.askCommand(&ask, &r)
	case "item/fileChange/requestApproval", "applyPatchApproval":
		a = c.askChange(&ask, &r)
	case "item/permissions/requestApproval":
		ask.wanted = r.Permissions
		ask.offer([]json.RawMessage{json.RawMessage(`"accept"`), json.RawMessage(`"acceptForSession"`), json.RawMessage(`"decline"`)})
		a = talk.ApprovalAsk(agent.Approval{Action: r.Item, Kind: agent.ApprovePermissions, Cwd: r.Cwd, Reason: r.Reason, Input: r.Permissions},
			cmp.Or(r.Reason, "codex asks for more permissions"), ask.options)
	case "item/tool/requestUserInput":
		q := agent.Questions{Action: r.Item}
		for _, one := range r.Questions {
			question := agent.Question{ID: one.ID, Header: one.Header, Text: one.Question, Secret: one.Secret}
			for _, o := range one.Options {
				question.Options = append(question.Options, spool.AskOption{ID: o.Label, Label: o.Label})
			}
			q.Questions = append(q.Questions, question)
		}
		ask.questions = q.Questions
		a = talk.QuestionAsk(q, "")
	case "mcpServer/elicitation/request":
		ask.questions = []agent.Question{{ID: "answer", Header: r.Server, Text: strings.TrimSpace(r.Message + " " + r.URL)}}
		a = talk.QuestionAsk(agent.Questions{Questions: ask.questions, Schema: r.Schema}, "")
	default:
		c.rpc.Refuse(m.ID, rpc.CodeMethodNotFound, "spool does not do "+m.Method)
		t.Unknown("request "+m.Method, m.Params)
		return
	}
	c.asks[talk.RequestKey(m.ID)] = ask
	t.Ask(talk.RequestKey(m.ID), a)
}

func (c *appServer) askCommand(ask *pendingAsk, r *askParams) spool.Ask {
	available := r.Available
	if len(available) == 0 {
		available = defaultDecisions
	}
	ask.offer(available)
	line := talk.CommandText(r.Command)
	return talk.ApprovalAsk(agent.Approval{Action: cmp.Or(r.Item, r.Call), Kind: agent.ActionCommand, Tool: "shell", Command: line, Cwd: r.Cwd, Reason: r.Reason},
		cmp.Or(talk.RelativeCommand(line, c.cwd), r.Reason, "run a command"), ask.options)
}

func (c *appServer) askChange(ask *pendingAsk, r *askParams) spool.Ask {
	ask.offer(defaultDecisions)
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
	return talk.ApprovalAsk(agent.Approval{Action: cmp.Or(r.Item, r.Call), Kind: agent.ActionFileChange, Tool: "apply_patch", Paths: paths,
		Reason: r.Reason, Changes: what.changes}, cmp.Or(strings.Join(names, ", "), r.Reason, "change files"), ask.options)
}

// knownOptions are the decisions we can name.
var knownOptions = map[string]spool.AskOption{
	"accept":                        {Label: "allow", Kind: talk.AllowOnce},
	"acceptForSession":              {Label: "allow for this session", Kind: talk.AllowAlways},
	"acceptWithExecpolicyAmendment": {Label: "allow, and always allow commands that begin so", Kind: talk.AllowAlways},
	"applyNetworkPolicyAmendment":   {Label: "change what may be reached in the network", Kind: talk.AllowAlways},
	"decline":                       {Label: "deny", Kind: talk.RejectOnce},
	"cancel":                        {Label: "deny and stop", Kind: talk.RejectOnce},
}

// offer makes options of decisions. To decline is always possible.
func (ask *pendingAsk) offer(decisions []json.RawMessage) {
	ask.decisions = make(map[string]json.RawMessage)
	add := func(raw json.RawMessage) {
		name := decisionName(raw)
		if _, twice := ask.decisions[name]; name == "" || twice {
			return
		}
		o := knownOptions[name]
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

func (c *appServer) Answer(key string, d agent.Decision, t *talk.Turn) error {
	ask, ok := c.asks[key]
	if !ok {
		return spool.ErrNotAsked
	}
	delete(c.asks, key)
	if ask.questions == nil {
		d = talk.Understood(ask.options, d, t)
	}
	switch ask.method {
	case "item/tool/requestUserInput":
		answers := make(map[string]any)
		if !talk.Declined(d) {
			for id, a := range talk.Answers(ask.questions, d) {
				answers[id] = map[string]any{"answers": []string{a}}
			}
		}
		c.rpc.Reply(ask.id, map[string]any{"answers": answers})
	case "mcpServer/elicitation/request":
		c.rpc.Reply(ask.id, talk.FormAnswer(d))
	case "item/permissions/requestApproval":
		c.rpc.Reply(ask.id, ask.granted(d))
	case "execCommandApproval", "applyPatchApproval":
		c.rpc.Reply(ask.id, map[string]any{"decision": oldDecision(d)})
	default:
		c.rpc.Reply(ask.id, map[string]any{"decision": ask.decision(d)})
	}
	return nil
}

// decision is codex's word for ours.
func (ask *pendingAsk) decision(d agent.Decision) json.RawMessage {
	switch d.Choice {
	case agent.DenyStop:
		return json.RawMessage(`"cancel"`)
	case agent.Deny:
		return json.RawMessage(`"decline"`)
	}
	if o, ok := talk.Choose(ask.options, d); ok {
		return ask.decisions[o.ID]
	}
	return json.RawMessage(`"decline"`)
}

// granted gives the permissions that were asked for, or none.
func (ask *pendingAsk) granted(d agent.Decision) map[string]any {
	scope, grant := "turn", map[string]json.RawMessage{}
	o, _ := talk.Choose(ask.options, d)
	if o.Kind == talk.AllowOnce || o.Kind == talk.AllowAlways {
		_ = talk.Decode(ask.wanted, &grant)
		for k, v := range grant {
			if talk.IsNull(v) {
				delete(grant, k)
			}
		}
	}
	if o.Kind == talk.AllowAlways {
		scope = "session"
	}
	return map[string]any{"permissions": grant, "scope": scope}
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
	return map[string]any{"denied": map[string]string{"rejection": cmp.Or(d.Message, "denied")}}
}
