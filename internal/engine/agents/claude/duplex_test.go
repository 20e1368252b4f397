package claude

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/agents/talk/talktest"
)

func TestClaudeDuplexAsks(t *testing.T) {
	ask := func(tool, input, more string) string {
		return fmt.Sprintf(`{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":%q,"input":%s,"tool_use_id":"u1"%s}}`, tool, input, more)
	}
	const questions = `{"questions":[{"question":"Which?","header":"H","options":[{"label":"one"},{"label":"two"}],"multiSelect":false}]}`
	tests := []struct {
		name, request string
		decision      agent.Decision
		want          string
	}{
		{"allow", ask("Bash", `{"command":"ls"}`, ""), agent.Decision{Choice: agent.Allow}, `{"behavior":"allow","updatedInput":{"command":"ls"}}`},
		{"allow something else", ask("Bash", `{"command":"ls"}`, ""), agent.Decision{Choice: agent.Allow, Input: json.RawMessage(`{"command":"ls -l"}`)}, `{"behavior":"allow","updatedInput":{"command":"ls -l"}}`},
		{"for the session", ask("Bash", `{"command":"ls"}`, `,"permission_suggestions":[{"type":"addRules"}]`), agent.Decision{Choice: agent.AllowSession}, `{"behavior":"allow","updatedInput":{"command":"ls"},"updatedPermissions":[{"type":"addRules"}]}`},
		{"nothing to remember", ask("Bash", `{"command":"ls"}`, ""), agent.Decision{Choice: agent.AllowSession}, `{"behavior":"allow","updatedInput":{"command":"ls"}}`},
		{"deny", ask("Bash", `{"command":"ls"}`, ""), agent.Decision{Choice: agent.Deny, Message: "not now"}, `{"behavior":"deny","message":"not now"}`},
		{"deny and stop", ask("Bash", `{"command":"ls"}`, ""), agent.Decision{Choice: agent.DenyStop, Message: "x"}, `{"behavior":"deny","message":"x","interrupt":true}`},
		{"nonsense", ask("Bash", `{"command":"ls"}`, ""), agent.Decision{Choice: "sure", Message: "x"}, `{"behavior":"deny","message":"x"}`},
		{"no input", ask("ExitPlanMode", `null`, ""), agent.Decision{Choice: agent.Allow}, `{"behavior":"allow","updatedInput":{}}`},
		{"question", ask("AskUserQuestion", questions, ""), agent.Decision{Choice: "two"}, `{"behavior":"allow","updatedInput":` + strings.TrimSuffix(questions, "}") + `,"answers":{"Which?":"two"}}}`},
		{"no answer", ask("AskUserQuestion", questions, ""), agent.Decision{Choice: agent.Deny}, `{"behavior":"deny","message":"The user does not want to answer."}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := talktest.NewDialog(t, Agent(), talk.Setup{})
			d.Hears(tt.request)
			d.Answers("r1", tt.decision)
			d.Last(`{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":` + tt.want + `}}`)
		})
	}
	t.Run("withdrawn", func(t *testing.T) {
		d := talktest.NewDialog(t, Agent(), talk.Setup{})
		d.Hears(ask("Bash", `{}`, ""), `{"type":"control_cancel_request","request_id":"r1"}`)
		if len(d.Withdrawn) != 1 {
			t.Errorf("withdrawn: %v", d.Withdrawn)
		}
	})
	t.Run("something else", func(t *testing.T) {
		d := talktest.NewDialog(t, Agent(), talk.Setup{})
		d.Hears(`{"type":"control_request","request_id":"r1","request":{"subtype":"hook_callback"}}`)
		d.Last(`{"type":"control_response","response":{"subtype":"error","request_id":"r1","error":"spool does not do hook_callback"}}`)
	})
	t.Run("a plan", func(t *testing.T) {
		d := talktest.NewDialog(t, Agent(), talk.Setup{})
		d.Hears(ask("ExitPlanMode", `{"plan":"1. look"}`, ""))
		if a := d.Asks["r1"]; a.Name != string(agent.ApprovePlan) {
			t.Errorf("ask: %+v", a)
		}
	})
	t.Run("where it writes", func(t *testing.T) {
		d := talktest.NewDialog(t, Agent(), talk.Setup{})
		d.Hears(ask("Write", `{"file_path":"/etc/x"}`, `,"blocked_path":"/etc"`))
		var a agent.Approval
		if err := json.Unmarshal(d.Asks["r1"].Data, &a); err != nil || cmp.Diff([]string{"/etc/x", "/etc"}, a.Paths) != "" || a.Kind != agent.ActionFileChange {
			t.Errorf("approval: %+v, %v", a, err)
		}
	})
}

func TestClaudeDuplexInterruptBeforeItIsReady(t *testing.T) {
	d := talktest.NewDialog(t, Agent(), talk.Setup{})
	d.Prompt("go")
	if err := d.Conv.Interrupt(d.Turn); err != nil {
		t.Fatal(err)
	}
	d.Outcome(spool.TurnInterrupted, agent.ClassStopped, "before it began")
	d.Hears(`{"type":"control_response","response":{"subtype":"error","request_id":"spool-1","error":"no"}}`)
	d.Last(`{"type":"control_request","request_id":"spool-1","request":{"subtype":"initialize"}}`)
	d.Prompt("again") // it reads whatever it answered
	d.Last(`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"again"}]}}`)
}
