package render_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/render"
)

// agentTurn are the events of one turn of an agent.
func agentTurn() []*spool.Event {
	approval, _ := json.Marshal(agent.Approval{Action: "c1", Kind: agent.ActionCommand, Command: "make"})
	decision, _ := json.Marshal(spool.Answer{Ask: 4, Data: json.RawMessage(`{"choice":"allow"}`), By: "ann"})
	prompt, _ := json.Marshal(spool.Prompt{Text: "Make it."})
	events := []*spool.Event{
		event(spool.KindInput, spool.Said{Kind: spool.InputPrompt, Data: prompt}),
		event(agent.KindMessage, agent.Message{Text: "I will."}),
		event(agent.KindAction, agent.Action{ID: "c1", Kind: agent.ActionCommand, Phase: agent.ActionStarted, Title: "make"}),
		event(spool.KindAsk, spool.Ask{Kind: agent.AskApproval, Prompt: "make", Data: approval}),
		event(spool.KindInput, spool.Said{Kind: spool.InputAnswer, Data: decision}),
		event(agent.KindAction, agent.Action{ID: "c1", Kind: agent.ActionCommand, Phase: agent.ActionCompleted, Title: "make", OK: new(true), DurationMs: 1200}),
		event(agent.KindPlan, agent.Plan{Items: []agent.PlanItem{{Text: "ship", Status: "pending"}}}),
		event(agent.KindMessage, agent.Message{Text: "Done."}),
		event(spool.KindDone, spool.Done{Outcome: spool.TurnOK, Answer: "Done.", DurationMs: 2000, Usage: json.RawMessage(`{"turn":{"input":3,"output":4}}`)}),
	}
	for i, e := range events {
		e.Seq, e.Turn, e.Time = spool.Seq(i+1), 1, time.Unix(int64(i), 0)
	}
	return events
}

func TestAgentEvents(t *testing.T) {
	want := []string{
		"> Make it.", "I will.", "… $ make", "? the agent asks to run a command\n    $ make", "→ a question: allowed (ann)",
		"✓ $ make (1.2s)", "plan 0/1\n  · ship", "Done.", "✓ done · 2.0s · 3 tokens in, 4 out",
	}
	for i, e := range agentTurn() {
		out, err := render.Renderer{}.Event(t.Context(), e)
		if err != nil || out.Text != want[i] || out.Aside || out.Failure {
			t.Errorf("event %d: %+v, %v; want %q", i+1, out, err, want[i])
		}
	}
}

// TestAgentTranscript checks that an action appears once, where it started, and
// that answers say what they answer.
func TestAgentTranscript(t *testing.T) {
	events := agentTurn()
	want := []string{
		"> Make it.", "I will.", "… $ make", "? the agent asks to run a command", "    $ make", "→ make: allowed (ann)",
		"plan 0/1", "  · ship", "Done.", "✓ done · 2.0s · 3 tokens in, 4 out", "",
	}
	want[2] = "✓ $ make (1.2s)"
	if got := transcript(t, 0, events...).Text(); got != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
	want[2] = "… $ make"
	if got := transcript(t, 0, events[:4]...).Text(); got != strings.Join(want[:5], "\n")+"\n" {
		t.Errorf("without its end: %q", got)
	}
}
