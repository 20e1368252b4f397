package render

import (
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/narrate"
)

// narrator returns what tells the events of an agent's run. The messages of the
// agent include its answer.
func narrator() *narrate.Narrator {
	return &narrate.Narrator{Prompts: true, Asks: true, Answer: narrate.AnswerNone}
}

// agentEvent renders one event of an agent's run without those before it.
func agentEvent(e *spool.Event) Output {
	n := narrator()
	n.Starts = true
	return told(n, e)
}

func told(n *narrate.Narrator, e *spool.Event) Output {
	var out Output
	for _, t := range n.Event(e) {
		if out.Text != "" {
			out.Text += "\n"
		}
		out.Text += t.Text
	}
	return out
}

// isDecision reports whether an input answers an approval or a question of an
// agent.
func isDecision(e *spool.Event) bool {
	var s spool.Said
	var a spool.Answer
	var d agent.Decision
	return json.Unmarshal(e.Data, &s) == nil && s.Kind == spool.InputAnswer && json.Unmarshal(s.Data, &a) == nil &&
		strings.HasPrefix(string(a.Data), "{") && json.Unmarshal(a.Data, &d) == nil && (d.Choice != "" || len(d.Answers) > 0)
}

// actionID returns the id of an action, or "".
func actionID(e *spool.Event) string {
	var a agent.Action
	if e.Kind != agent.KindAction || json.Unmarshal(e.Data, &a) != nil {
		return ""
	}
	return a.ID
}
