package pi

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/agents/talk/talktest"
)

func TestPiRPCDialogs(t *testing.T) {
	tests := []struct {
		name, request string
		decision      agent.Decision
		want          string
	}{
		{"confirm", `"method":"confirm","title":"Sure?","message":"All is lost."`, agent.Decision{Choice: agent.Allow}, `"confirmed":true`},
		{"not confirmed", `"method":"confirm","title":"Sure?"`, agent.Decision{Choice: agent.Deny}, `"confirmed":false`},
		{"nonsense", `"method":"confirm","title":"Sure?"`, agent.Decision{Choice: "perhaps"}, `"confirmed":false`},
		{"select", `"method":"select","title":"Which?","options":["Allow","Block"]`, agent.Decision{Choice: "Block"}, `"value":"Block"`},
		{"input", `"method":"input","title":"Name?"`, agent.Decision{Choice: "me"}, `"value":"me"`},
		{"left", `"method":"editor","title":"Text"`, agent.Decision{Choice: agent.Deny}, `"cancelled":true`},
	}
	for _, tt := range tests {
		d := talktest.NewDialog(t, Agent(), talk.Setup{})
		d.Hears(`{"type":"extension_ui_request","id":"e1",` + tt.request + `}`)
		d.Answers("e1", tt.decision)
		d.Last(`{"type":"extension_ui_response","id":"e1",` + tt.want + `}`)
	}
	d := talktest.NewDialog(t, Agent(), talk.Setup{})
	d.Hears(`{"type":"extension_ui_request","id":"e1","method":"hologram"}`)
	d.Last(`{"type":"extension_ui_response","id":"e1","cancelled":true}`)
	d.Hears(`{"type":"extension_ui_request","id":"e2","method":"notify","message":"hey","notifyType":"warning"}`)
	if got := d.Notices(); got != talk.NoticeUnknown+" "+talk.NoticeWarning {
		t.Errorf("notices: %s", got)
	}
}

func TestPiRPCTurns(t *testing.T) {
	d := talktest.NewDialog(t, Agent(), talk.Setup{Resume: "s0", Fork: true})
	d.Last(`{"id":"1","type":"clone"}`)
	d.Prompt("go")
	d.Hears(`{"id":"1","type":"response","command":"clone","success":true,"data":{"cancelled":false}}`)
	d.Last(`{"id":"2","type":"get_state"}`)
	d.Hears(`{"id":"2","type":"response","command":"get_state","success":true,"data":{"sessionId":"s1"}}`)
	d.Last(`{"id":"3","type":"prompt","message":"go"}`)
	if d.Turn.Run.Session != "s1" {
		t.Errorf("session %q", d.Turn.Run.Session)
	}
	if err := d.Conv.Steer(spool.Prompt{Text: "also"}, d.Turn); err != nil {
		t.Fatal(err)
	}
	d.Last(`{"id":"4","type":"steer","message":"also"}`)
	d.Hears(`{"id":"4","type":"response","command":"steer","success":false,"error":"not now"}`)
	if got := d.Notices(); got != talk.NoticeNotSteered {
		t.Errorf("notices: %s", got)
	}
	d.Hears(`{"id":"3","type":"response","command":"prompt","success":false,"error":"Unauthorized: no API key"}`)
	d.Outcome(spool.TurnError, agent.ClassAuth, "no API key")
	if err := d.Conv.Steer(spool.Prompt{Text: "late"}, d.Turn); err == nil {
		t.Error("steered what is over")
	}
	// A failed turn that nobody aborted is no interrupt.
	d.Prompt("more")
	d.Last(`{"id":"5","type":"prompt","message":"also\n\nmore"}`) // it is not lost
	d.Hears(`{"type":"agent_start"}`, `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"This operation was aborted"}}`,
		`{"type":"agent_end"}`, `{"type":"agent_settled"}`)
	if r := d.Turn.Result(); r == nil || r.Outcome != spool.TurnError {
		t.Errorf("result %+v", r)
	}
}
