package narrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/visible"
)

func (n *Narrator) ask(e *spool.Event) {
	var a spool.Ask
	if !decode(e, &a) {
		return
	}
	what := visible.Short(cmp.Or(unwrap(a.Prompt), a.Name, a.Kind), 160)
	if n.Asks {
		n.line(n.Question(&a, false))
	} else {
		n.flush()
	}
	if a.Answer != nil {
		n.answered(what, choice(*a.Answer), a.Answer.By)
		return
	}
	if n.asked == nil {
		n.asked = make(map[spool.Seq]string)
	}
	n.asked[e.Seq] = what
}

// answered tells the answer to an ask.
func (n *Narrator) answered(what, answer, by string) {
	n.line(n.dim(visible.Line(fmt.Sprintf("→ %s: %s (%s)", cmp.Or(what, "a question"), answer, cmp.Or(by, "another client")))))
}

// choice returns the text of an answer.
func choice(a spool.Answer) string {
	if a.Error != nil {
		return a.Error.Message
	}
	var d agent.Decision
	if json.Unmarshal(a.Data, &d.Choice) != nil && json.Unmarshal(a.Data, &d) != nil {
		return "answered"
	}
	switch d.Choice {
	case agent.Allow:
		return "allowed"
	case agent.AllowSession:
		return "allowed for the session"
	case agent.Deny:
		return "denied"
	case agent.DenyStop:
		return "denied, and the turn ended"
	case "":
		return "answered"
	}
	return d.Choice
}

// wants says what an approval is for.
var wants = map[agent.ActionKind]string{
	agent.ActionCommand:      "run a command",
	agent.ActionFileChange:   "change files",
	agent.ActionRead:         "read",
	agent.ActionSearch:       "search",
	agent.ActionFetch:        "fetch from the network",
	agent.ActionWebSearch:    "search the web",
	agent.ActionSubagent:     "start a subagent",
	agent.ActionMCP:          "use a tool of a server",
	agent.ApprovePermissions: "have more permissions",
	agent.ApprovePlan:        "begin with its plan",
}

// Question returns the text of an ask, without its answers. In full it holds
// everything that the answer is about.
func (n *Narrator) Question(q *spool.Ask, full bool) string {
	var p agent.Approval
	if q.Kind != agent.AskApproval || json.Unmarshal(q.Data, &p) != nil {
		return n.bold("? " + indent(visible.Text(cmp.Or(q.Prompt, q.Name, q.Kind)), "  "))
	}
	want, known := wants[p.Kind]
	if !known {
		want = "go on"
		if p.Tool != "" && p.Kind != agent.ActionOther {
			want = "use " + visible.Short(p.Tool, 80)
		}
	}
	lines := []string{n.bold("? " + visible.Line(cmp.Or(n.Agent, "the agent")) + " asks to " + want)}
	add := func(text string) { lines = append(lines, "    "+indent(visible.Text(text), "    ")) }
	if p.Command != "" {
		add("$ " + p.Command)
	} else if q.Prompt != "" && len(p.Changes) == 0 {
		add(q.Prompt)
	}
	n.questionFiles(&p, full, add, &lines)
	if full && p.Command == "" && len(p.Changes) == 0 {
		if text := inputText(&p); text != "" {
			add(text)
		}
	}
	if p.Reason != "" && p.Reason != q.Prompt {
		add("because: " + p.Reason)
	}
	if p.Cwd != "" && p.Cwd != n.cwd && p.Kind == agent.ActionCommand {
		add("in " + p.Cwd)
	}
	return strings.Join(lines, "\n")
}

// questionFiles adds the files of an approval and what changes in them.
func (n *Narrator) questionFiles(p *agent.Approval, full bool, add func(string), lines *[]string) {
	shown := make(map[string]bool)
	for _, c := range p.Changes {
		shown[n.relative(c.Path)] = true
		add(n.changeTitle(&agent.Action{Tool: p.Tool}, c))
		if full {
			if n.shown == nil {
				n.shown = make(map[string]bool)
			}
			n.shown[p.Action] = true
			c.Path = ""
			if text := n.diff([]agent.FileChange{c}, -1); text != "" {
				*lines = append(*lines, "    "+indent(text, "    "))
			}
		}
	}
	for _, path := range p.Paths {
		if path = n.relative(path); !shown[path] {
			shown[path] = true
			add("file " + visible.Line(path))
		}
	}
}

// inputText shows what an agent gives to a tool: its plan, or its arguments.
func inputText(p *agent.Approval) string {
	var args map[string]any
	if p.Kind == agent.ApprovePlan && json.Unmarshal(p.Input, &args) == nil {
		if plan, ok := args["plan"].(string); ok {
			return plan
		}
	}
	var b bytes.Buffer
	if len(p.Input) == 0 || json.Indent(&b, p.Input, "", "  ") != nil {
		return ""
	}
	return b.String()
}
