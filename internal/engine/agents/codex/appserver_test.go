package codex

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/agents/talk/talktest"
)

// codexBegun is a dialog with codex in which the thread is known.
func codexBegun(t *testing.T) *talktest.Dialog {
	t.Helper()
	d := talktest.NewDialog(t, Agent(), talk.Setup{})
	d.Hears(`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"T"},"model":"m"}}`)
	d.Prompt("go")
	d.Last(`{"id":3,"method":"turn/start","params":{"threadId":"T","input":[{"type":"text","text":"go","text_elements":[]}]}}`)
	return d
}

func TestCodexAppServerInterrupt(t *testing.T) {
	t.Run("before_the_thread", func(t *testing.T) {
		d := talktest.NewDialog(t, Agent(), talk.Setup{})
		d.Prompt("go")
		if err := d.Conv.Interrupt(d.Turn); err != nil {
			t.Fatal(err)
		}
		d.Outcome(spool.TurnInterrupted, agent.ClassStopped, "before it began")
		d.Hears(`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"T"}}}`)
		d.Last(`{"id":2,"method":"thread/start","params":{"cwd":"/w"}}`)
	})
	t.Run("before_the_turn_has_an_id", func(t *testing.T) {
		d := codexBegun(t)
		if err := d.Conv.Interrupt(d.Turn); err != nil {
			t.Fatal(err)
		}
		d.Hears(`{"id":3,"result":{"turn":{"id":"U"}}}`)
		d.Last(`{"id":4,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`)
	})
}

func TestCodexAppServerResume(t *testing.T) {
	d := talktest.NewDialog(t, Agent(), talk.Setup{Resume: "T", Config: &agent.Config{Model: "m", Sandbox: "read-only", SkipPermissions: true}})
	d.Prompt("go")
	d.Hears(`{"id":1,"result":{}}`)
	d.Last(`{"id":2,"method":"thread/resume","params":{"threadId":"T","cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"danger-full-access","excludeTurns":true}}`)
	d.Hears(`{"id":2,"error":{"code":-32600,"message":"no rollout found for thread id T"}}`)
	d.Outcome(spool.TurnError, agent.ClassSession, "no rollout")
	d.Prompt("again")
	d.Outcome(spool.TurnError, agent.ClassSession, "no rollout")
	d = talktest.NewDialog(t, Agent(), talk.Setup{Resume: "T", Fork: true})
	d.Hears(`{"id":1,"result":{}}`)
	d.Last(`{"id":2,"method":"thread/fork","params":{"threadId":"T","cwd":"/w","excludeTurns":true}}`)
}

func TestCodexAppServerSteer(t *testing.T) {
	d := codexBegun(t)
	if err := d.Conv.Steer(spool.Prompt{Text: "also"}, d.Turn); err == nil {
		t.Error("steered a turn without an id")
	}
	d.Hears(`{"id":3,"result":{"turn":{"id":"U"}}}`)
	if err := d.Conv.Steer(spool.Prompt{Text: "also"}, d.Turn); err != nil {
		t.Fatal(err)
	}
	d.Last(`{"id":4,"method":"turn/steer","params":{"threadId":"T","expectedTurnId":"U","input":[{"type":"text","text":"also","text_elements":[]}]}}`)
	d.Hears(`{"id":4,"error":{"code":-32600,"message":"no active turn"}}`)
	if got := d.Notices(); got != talk.NoticeNotSteered {
		t.Errorf("notices: %s", got)
	}
	// It is not lost.
	d.Prompt("more")
	d.Last(`{"id":5,"method":"turn/start","params":{"threadId":"T","input":[{"type":"text","text":"also","text_elements":[]},{"type":"text","text":"more","text_elements":[]}]}}`)
}

// Only the end of our own turn ends it: subagents have threads with turns.
func TestCodexAppServerOtherThreads(t *testing.T) {
	d := codexBegun(t)
	d.Hears(`{"id":3,"result":{"turn":{"id":"U"}}}`,
		`{"method":"item/started","params":{"threadId":"T","turnId":"U","item":{"type":"collabAgentToolCall","id":"c1","tool":"spawnAgent","prompt":"look","receiverThreadIds":["T2"],"status":"inProgress"}}}`,
		`{"method":"item/completed","params":{"threadId":"T2","turnId":"U2","item":{"type":"agentMessage","id":"m","text":"found it","phase":"final_answer"}}}`,
		`{"method":"turn/completed","params":{"threadId":"T2","turn":{"id":"U2","status":"completed"}}}`,
		`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U0","status":"failed","error":{"message":"of another"}}}}`)
	if d.Turn.Result() != nil {
		t.Errorf("ended by another: %+v", d.Turn.Result())
	}
	var m agent.Message
	for _, e := range d.Log.List {
		if e.Kind == agent.KindMessage {
			if err := json.Unmarshal(e.Data, &m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if m.Parent != "c1" || m.Text != "found it" {
		t.Errorf("the subagent's message: %+v", m)
	}
	d.Hears(`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"completed"}}}`)
	if d.Outcome(spool.TurnOK, "", ""); d.Turn.Result().Answer != "" {
		t.Errorf("the subagent's words are the answer: %+v", d.Turn.Result())
	}
}

func TestCodexAppServerErrors(t *testing.T) {
	tests := []struct{ info, message, class string }{
		{`"unauthorized"`, "x", agent.ClassAuth},
		{`"contextWindowExceeded"`, "x", agent.ClassContext},
		{`{"responseTooManyFailedAttempts":{"httpStatusCode":429}}`, "x", agent.ClassRateLimit},
		{`{"httpConnectionFailed":{"httpStatusCode":null}}`, "connection refused", agent.ClassNetwork},
		{`null`, "who knows", agent.ClassOther},
	}
	for _, tt := range tests {
		d := codexBegun(t)
		d.Hears(`{"id":3,"result":{"turn":{"id":"U"}}}`,
			fmt.Sprintf(`{"method":"error","params":{"threadId":"T","turnId":"U","willRetry":true,"error":{"message":"Reconnecting... 2/5","codexErrorInfo":%s,"additionalDetails":"cut"}}}`, tt.info),
			fmt.Sprintf(`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"failed","error":{"message":%q,"codexErrorInfo":%s}}}}`, tt.message, tt.info))
		d.Outcome(spool.TurnError, tt.class, tt.message)
		var r agent.Retry
		for _, e := range d.Log.List {
			if e.Kind == agent.KindRetry {
				if err := json.Unmarshal(e.Data, &r); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r.Attempt != 2 || r.Max != 5 || r.Reason != "cut" {
			t.Errorf("retry: %+v", r)
		}
	}
}

func TestCodexAppServerAsks(t *testing.T) {
	const command = `{"id":7,"method":"item/commandExecution/requestApproval","params":{"threadId":"T","itemId":"c1","command":"ls","cwd":"/w","availableDecisions":["accept",{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["ls"]}},"cancel"]}}`
	const change = `{"id":7,"method":"item/fileChange/requestApproval","params":{"threadId":"T","itemId":"f1","grantRoot":"/x"}}`
	const permissions = `{"id":7,"method":"item/permissions/requestApproval","params":{"threadId":"T","itemId":"p1","cwd":"/w","reason":"net","permissions":{"network":{"enabled":true},"fileSystem":null}}}`
	const question = `{"id":7,"method":"item/tool/requestUserInput","params":{"threadId":"T","itemId":"q1","questions":[{"id":"a","header":"A","question":"Which?","options":[{"label":"one","description":""},{"label":"two","description":""}]}]}}`
	const questions = `{"id":7,"method":"item/tool/requestUserInput","params":{"threadId":"T","itemId":"q1","questions":[{"id":"a","question":"A?"},{"id":"b","question":"B?","isSecret":true}]}}`
	const form = `{"id":7,"method":"mcpServer/elicitation/request","params":{"threadId":"T","serverName":"docs","mode":"form","message":"Name?","requestedSchema":{"type":"object"}}}`
	const old = `{"id":7,"method":"execCommandApproval","params":{"conversationId":"T","callId":"c1","command":["ls","-l"],"cwd":"/w"}}`
	tests := []struct {
		name, request string
		decision      agent.Decision
		want          string
	}{
		{"allow", command, agent.Decision{Choice: agent.Allow}, `{"decision":"accept"}`},
		{"deny", command, agent.Decision{Choice: agent.Deny}, `{"decision":"decline"}`},
		{"deny and stop", command, agent.Decision{Choice: agent.DenyStop}, `{"decision":"cancel"}`},
		{"for the session", command, agent.Decision{Choice: agent.AllowSession}, `{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["ls"]}}}`},
		{"by its own word", command, agent.Decision{Choice: "cancel"}, `{"decision":"cancel"}`},
		{"nonsense", command, agent.Decision{Choice: "sure"}, `{"decision":"decline"}`},
		{"change for the session", change, agent.Decision{Choice: agent.AllowSession}, `{"decision":"acceptForSession"}`},
		{"grant", permissions, agent.Decision{Choice: agent.Allow}, `{"permissions":{"network":{"enabled":true}},"scope":"turn"}`},
		{"grant for the session", permissions, agent.Decision{Choice: agent.AllowSession}, `{"permissions":{"network":{"enabled":true}},"scope":"session"}`},
		{"grant nothing", permissions, agent.Decision{Choice: agent.Deny}, `{"permissions":{},"scope":"turn"}`},
		{"choice", question, agent.Decision{Choice: "two"}, `{"answers":{"a":{"answers":["two"]}}}`},
		{"free text", question, agent.Decision{Choice: "neither"}, `{"answers":{"a":{"answers":["neither"]}}}`},
		{"no answer", question, agent.Decision{Choice: agent.Deny}, `{"answers":{}}`},
		{"several", questions, agent.Decision{Answers: map[string]string{"a": "x", "b": "y"}}, `{"answers":{"a":{"answers":["x"]},"b":{"answers":["y"]}}}`},
		{"form", form, agent.Decision{Answers: map[string]string{"name": "x"}}, `{"action":"accept","content":{"name":"x"},"_meta":null}`},
		{"form declined", form, agent.Decision{Choice: agent.Deny}, `{"action":"decline","content":null,"_meta":null}`},
		{"old server", old, agent.Decision{Choice: agent.Allow}, `{"decision":"approved"}`},
		{"old server denied", old, agent.Decision{Choice: agent.Deny, Message: "no"}, `{"decision":{"denied":{"rejection":"no"}}}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := codexBegun(t)
			d.Hears(tt.request)
			d.Answers("7", tt.decision)
			d.Last(`{"id":7,"result":` + tt.want + `}`)
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		d := codexBegun(t)
		d.Hears(command, `{"method":"serverRequest/resolved","params":{"threadId":"T","requestId":7}}`)
		if len(d.Withdrawn) != 1 || d.Withdrawn[0] != "7" {
			t.Errorf("withdrawn: %v", d.Withdrawn)
		}
	})
	t.Run("something else", func(t *testing.T) {
		d := codexBegun(t)
		d.Hears(`{"id":"x","method":"attestation/generate","params":{}}`)
		d.Last(`{"id":"x","error":{"code":-32601,"message":"spool does not do attestation/generate"}}`)
	})
	t.Run("a secret question says so", func(t *testing.T) {
		d := codexBegun(t)
		d.Hears(questions)
		if a := d.Asks["7"]; !a.Secret || a.Kind != agent.AskQuestion || a.Prompt != "A?\nB?" {
			t.Errorf("ask: %+v", a)
		}
	})
}
