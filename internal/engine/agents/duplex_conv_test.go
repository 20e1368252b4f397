package agents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// sentWire keeps what is sent.
type sentWire struct{ lines []string }

func (w *sentWire) write(b []byte) { w.lines = append(w.lines, strings.TrimSpace(string(b))) }
func (w *sentWire) closeInput()    {}

// dialog is a conversation without a process: a test says what the agent says.
type dialog struct {
	t         *testing.T
	conv      conversation
	wire      *sentWire
	log       *eventList
	turn      *turn
	asks      map[string]spool.Ask
	withdrawn []string
}

func newDialog(t *testing.T, agent string, s setup) *dialog {
	t.Helper()
	if s.config == nil {
		s.config = new(Config)
	}
	s.config.Agent = agent
	s.cwd = "/w"
	conv, err := runners()[agent].duplex(s)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := conv.command(); err != nil || !c.open || len(c.argv) == 0 {
		t.Fatalf("command: %+v, %v", c, err)
	}
	d := &dialog{t: t, conv: conv, wire: new(sentWire), log: new(eventList), asks: make(map[string]spool.Ask)}
	run := &shared{out: d.log, agent: agent, cwd: "/w"}
	run.asked = func(_ *turn, key string, _ spool.Seq, a spool.Ask) { d.asks[key] = a }
	run.withdrawn = func(_ *turn, key string) { d.withdrawn = append(d.withdrawn, key) }
	d.turn = newTurn(run, 1)
	conv.opened(d.wire, d.turn)
	return d
}

func (d *dialog) prompt(text string) {
	d.t.Helper()
	d.turn = newTurn(d.turn.run, d.turn.seq+1)
	if err := d.conv.prompt(spool.Prompt{Text: text}, d.turn); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dialog) hears(lines ...string) {
	for _, l := range lines {
		d.conv.line([]byte(l), d.turn)
	}
}

func (d *dialog) answers(key string, decision agent.Decision) {
	d.t.Helper()
	if _, ok := d.asks[key]; !ok {
		d.t.Fatalf("nothing was asked with key %s: %v", key, d.asks)
	}
	if err := d.conv.answer(key, decision, d.turn); err != nil {
		d.t.Fatal(err)
	}
	if err := d.conv.answer(key, decision, d.turn); err == nil {
		d.t.Error("a second answer was taken")
	}
}

// last checks the last thing that was sent.
func (d *dialog) last(want string) {
	d.t.Helper()
	got := ""
	if len(d.wire.lines) > 0 {
		got = d.wire.lines[len(d.wire.lines)-1]
	}
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil || !cmp.Equal(g, w) {
		d.t.Errorf("sent %s\nwant %s", got, want)
	}
}

func (d *dialog) outcome(want spool.TurnOutcome, class, text string) {
	d.t.Helper()
	r := d.turn.result
	if r == nil || r.outcome != want || r.class != class || !strings.Contains(r.err, text) {
		d.t.Errorf("result %+v, want %s, %s, %s", r, want, class, text)
	}
}

// codexBegun is a dialog with codex in which the thread is known.
func codexBegun(t *testing.T) *dialog {
	t.Helper()
	d := newDialog(t, Codex, setup{})
	d.hears(`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"T"},"model":"m"}}`)
	d.prompt("go")
	d.last(`{"id":3,"method":"turn/start","params":{"threadId":"T","input":[{"type":"text","text":"go","text_elements":[]}]}}`)
	return d
}

func TestCodexAppServerInterrupt(t *testing.T) {
	t.Run("before_the_thread", func(t *testing.T) {
		d := newDialog(t, Codex, setup{})
		d.prompt("go")
		if err := d.conv.interrupt(d.turn); err != nil {
			t.Fatal(err)
		}
		d.outcome(spool.TurnInterrupted, agent.ClassStopped, "before it began")
		d.hears(`{"id":1,"result":{}}`, `{"id":2,"result":{"thread":{"id":"T"}}}`)
		d.last(`{"id":2,"method":"thread/start","params":{"cwd":"/w"}}`)
	})
	t.Run("before_the_turn_has_an_id", func(t *testing.T) {
		d := codexBegun(t)
		if err := d.conv.interrupt(d.turn); err != nil {
			t.Fatal(err)
		}
		d.hears(`{"id":3,"result":{"turn":{"id":"U"}}}`)
		d.last(`{"id":4,"method":"turn/interrupt","params":{"threadId":"T","turnId":"U"}}`)
	})
}

func TestCodexAppServerResume(t *testing.T) {
	d := newDialog(t, Codex, setup{resume: "T", config: &Config{Model: "m", Sandbox: "read-only", SkipPermissions: true}})
	d.prompt("go")
	d.hears(`{"id":1,"result":{}}`)
	d.last(`{"id":2,"method":"thread/resume","params":{"threadId":"T","cwd":"/w","model":"m","approvalPolicy":"never","sandbox":"danger-full-access","excludeTurns":true}}`)
	d.hears(`{"id":2,"error":{"code":-32600,"message":"no rollout found for thread id T"}}`)
	d.outcome(spool.TurnError, agent.ClassSession, "no rollout")
	d.prompt("again")
	d.outcome(spool.TurnError, agent.ClassSession, "no rollout")
	d = newDialog(t, Codex, setup{resume: "T", fork: true})
	d.hears(`{"id":1,"result":{}}`)
	d.last(`{"id":2,"method":"thread/fork","params":{"threadId":"T","cwd":"/w","excludeTurns":true}}`)
}

func TestCodexAppServerSteer(t *testing.T) {
	d := codexBegun(t)
	if err := d.conv.steer(spool.Prompt{Text: "also"}, d.turn); err == nil {
		t.Error("steered a turn without an id")
	}
	d.hears(`{"id":3,"result":{"turn":{"id":"U"}}}`)
	if err := d.conv.steer(spool.Prompt{Text: "also"}, d.turn); err != nil {
		t.Fatal(err)
	}
	d.last(`{"id":4,"method":"turn/steer","params":{"threadId":"T","expectedTurnId":"U","input":[{"type":"text","text":"also","text_elements":[]}]}}`)
	d.hears(`{"id":4,"error":{"code":-32600,"message":"no active turn"}}`)
	if got := d.notices(); got != NoticeNotSteered {
		t.Errorf("notices: %s", got)
	}
	// It is not lost.
	d.prompt("more")
	d.last(`{"id":5,"method":"turn/start","params":{"threadId":"T","input":[{"type":"text","text":"also","text_elements":[]},{"type":"text","text":"more","text_elements":[]}]}}`)
}

func (d *dialog) notices() string {
	var codes []string
	for _, e := range d.log.events {
		if e.Kind == spool.KindNotice {
			var n spool.Notice
			if err := json.Unmarshal(e.Data, &n); err != nil {
				d.t.Fatal(err)
			}
			codes = append(codes, n.Code)
		}
	}
	return strings.Join(codes, " ")
}

// Only the end of our own turn ends it: subagents have threads with turns.
func TestCodexAppServerOtherThreads(t *testing.T) {
	d := codexBegun(t)
	d.hears(`{"id":3,"result":{"turn":{"id":"U"}}}`,
		`{"method":"item/started","params":{"threadId":"T","turnId":"U","item":{"type":"collabAgentToolCall","id":"c1","tool":"spawnAgent","prompt":"look","receiverThreadIds":["T2"],"status":"inProgress"}}}`,
		`{"method":"item/completed","params":{"threadId":"T2","turnId":"U2","item":{"type":"agentMessage","id":"m","text":"found it","phase":"final_answer"}}}`,
		`{"method":"turn/completed","params":{"threadId":"T2","turn":{"id":"U2","status":"completed"}}}`,
		`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U0","status":"failed","error":{"message":"of another"}}}}`)
	if d.turn.result != nil {
		t.Errorf("ended by another: %+v", d.turn.result)
	}
	var m agent.Message
	for _, e := range d.log.events {
		if e.Kind == spool.KindMessage {
			if err := json.Unmarshal(e.Data, &m); err != nil {
				t.Fatal(err)
			}
		}
	}
	if m.Parent != "c1" || m.Text != "found it" {
		t.Errorf("the subagent's message: %+v", m)
	}
	d.hears(`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"completed"}}}`)
	if d.outcome(spool.TurnOK, "", ""); d.turn.result.answer != "" {
		t.Errorf("the subagent's words are the answer: %+v", d.turn.result)
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
		d.hears(`{"id":3,"result":{"turn":{"id":"U"}}}`,
			fmt.Sprintf(`{"method":"error","params":{"threadId":"T","turnId":"U","willRetry":true,"error":{"message":"Reconnecting... 2/5","codexErrorInfo":%s,"additionalDetails":"cut"}}}`, tt.info),
			fmt.Sprintf(`{"method":"turn/completed","params":{"threadId":"T","turn":{"id":"U","status":"failed","error":{"message":%q,"codexErrorInfo":%s}}}}`, tt.message, tt.info))
		d.outcome(spool.TurnError, tt.class, tt.message)
		var r agent.Retry
		for _, e := range d.log.events {
			if e.Kind == spool.KindRetry {
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
			d.hears(tt.request)
			d.answers("7", tt.decision)
			d.last(`{"id":7,"result":` + tt.want + `}`)
		})
	}
	t.Run("nobody answers", func(t *testing.T) {
		d := codexBegun(t)
		d.hears(command, `{"method":"serverRequest/resolved","params":{"threadId":"T","requestId":7}}`)
		if len(d.withdrawn) != 1 || d.withdrawn[0] != "7" {
			t.Errorf("withdrawn: %v", d.withdrawn)
		}
	})
	t.Run("something else", func(t *testing.T) {
		d := codexBegun(t)
		d.hears(`{"id":"x","method":"attestation/generate","params":{}}`)
		d.last(`{"id":"x","error":{"code":-32601,"message":"spool does not do attestation/generate"}}`)
	})
	t.Run("a secret question says so", func(t *testing.T) {
		d := codexBegun(t)
		d.hears(questions)
		if a := d.asks["7"]; !a.Secret || a.Kind != spool.AskQuestion || a.Prompt != "A?\nB?" {
			t.Errorf("ask: %+v", a)
		}
	})
}

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
			d := newDialog(t, Claude, setup{})
			d.hears(tt.request)
			d.answers("r1", tt.decision)
			d.last(`{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":` + tt.want + `}}`)
		})
	}
	t.Run("withdrawn", func(t *testing.T) {
		d := newDialog(t, Claude, setup{})
		d.hears(ask("Bash", `{}`, ""), `{"type":"control_cancel_request","request_id":"r1"}`)
		if len(d.withdrawn) != 1 {
			t.Errorf("withdrawn: %v", d.withdrawn)
		}
	})
	t.Run("something else", func(t *testing.T) {
		d := newDialog(t, Claude, setup{})
		d.hears(`{"type":"control_request","request_id":"r1","request":{"subtype":"hook_callback"}}`)
		d.last(`{"type":"control_response","response":{"subtype":"error","request_id":"r1","error":"spool does not do hook_callback"}}`)
	})
	t.Run("a plan", func(t *testing.T) {
		d := newDialog(t, Claude, setup{})
		d.hears(ask("ExitPlanMode", `{"plan":"1. look"}`, ""))
		if a := d.asks["r1"]; a.Name != string(ApprovePlan) {
			t.Errorf("ask: %+v", a)
		}
	})
	t.Run("where it writes", func(t *testing.T) {
		d := newDialog(t, Claude, setup{})
		d.hears(ask("Write", `{"file_path":"/etc/x"}`, `,"blocked_path":"/etc"`))
		var a Approval
		if err := json.Unmarshal(d.asks["r1"].Data, &a); err != nil || cmp.Diff([]string{"/etc/x", "/etc"}, a.Paths) != "" || a.Kind != agent.ActionFileChange {
			t.Errorf("approval: %+v, %v", a, err)
		}
	})
}

func TestClaudeDuplexInterruptBeforeItIsReady(t *testing.T) {
	d := newDialog(t, Claude, setup{})
	d.prompt("go")
	if err := d.conv.interrupt(d.turn); err != nil {
		t.Fatal(err)
	}
	d.outcome(spool.TurnInterrupted, agent.ClassStopped, "before it began")
	d.hears(`{"type":"control_response","response":{"subtype":"error","request_id":"spool-1","error":"no"}}`)
	d.last(`{"type":"control_request","request_id":"spool-1","request":{"subtype":"initialize"}}`)
	d.prompt("again") // it reads whatever it answered
	d.last(`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"again"}]}}`)
}

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
		d := newDialog(t, Pi, setup{})
		d.hears(`{"type":"extension_ui_request","id":"e1",` + tt.request + `}`)
		d.answers("e1", tt.decision)
		d.last(`{"type":"extension_ui_response","id":"e1",` + tt.want + `}`)
	}
	d := newDialog(t, Pi, setup{})
	d.hears(`{"type":"extension_ui_request","id":"e1","method":"hologram"}`)
	d.last(`{"type":"extension_ui_response","id":"e1","cancelled":true}`)
	d.hears(`{"type":"extension_ui_request","id":"e2","method":"notify","message":"hey","notifyType":"warning"}`)
	if got := d.notices(); got != NoticeUnknown+" "+NoticeWarning {
		t.Errorf("notices: %s", got)
	}
}

func TestPiRPCTurns(t *testing.T) {
	d := newDialog(t, Pi, setup{resume: "s0", fork: true})
	d.last(`{"id":"1","type":"clone"}`)
	d.prompt("go")
	d.hears(`{"id":"1","type":"response","command":"clone","success":true,"data":{"cancelled":false}}`)
	d.last(`{"id":"2","type":"get_state"}`)
	d.hears(`{"id":"2","type":"response","command":"get_state","success":true,"data":{"sessionId":"s1"}}`)
	d.last(`{"id":"3","type":"prompt","message":"go"}`)
	if d.turn.run.resume != "s1" {
		t.Errorf("session %q", d.turn.run.resume)
	}
	if err := d.conv.steer(spool.Prompt{Text: "also"}, d.turn); err != nil {
		t.Fatal(err)
	}
	d.last(`{"id":"4","type":"steer","message":"also"}`)
	d.hears(`{"id":"4","type":"response","command":"steer","success":false,"error":"not now"}`)
	if got := d.notices(); got != NoticeNotSteered {
		t.Errorf("notices: %s", got)
	}
	d.hears(`{"id":"3","type":"response","command":"prompt","success":false,"error":"Unauthorized: no API key"}`)
	d.outcome(spool.TurnError, agent.ClassAuth, "no API key")
	if err := d.conv.steer(spool.Prompt{Text: "late"}, d.turn); err == nil {
		t.Error("steered what is over")
	}
	// A failed turn that nobody aborted is no interrupt.
	d.prompt("more")
	d.last(`{"id":"5","type":"prompt","message":"also\n\nmore"}`) // it is not lost
	d.hears(`{"type":"agent_start"}`, `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"This operation was aborted"}}`,
		`{"type":"agent_end"}`, `{"type":"agent_settled"}`)
	if r := d.turn.result; r == nil || r.outcome != spool.TurnError {
		t.Errorf("result %+v", r)
	}
}

// What a protocol cannot do is done the other way, unless that was excluded.
func TestAutoModeFindsTheWay(t *testing.T) {
	tests := []struct {
		config Config
		duplex bool
		err    string
	}{
		{Config{Agent: Codex}, true, ""},
		{Config{Agent: Codex, Mode: ModeExec}, false, ""},
		{Config{Agent: Codex, Profile: "p"}, false, ""},
		{Config{Agent: Codex, Profile: "p", Mode: ModeDuplex}, true, "no profile"},
		{Config{Agent: OpenCode}, false, ""},
		{Config{Agent: OpenCode, Mode: ModeDuplex}, false, "no duplex mode"},
		{Config{Agent: ACP, Command: []string{"x"}}, true, ""},
		{Config{Agent: ACP, Command: []string{"x"}, Mode: ModeExec}, false, "no exec mode"},
		{Config{Agent: ACP}, true, "needs the command"},
	}
	for _, tt := range tests {
		b, err := json.Marshal(tt.config)
		if err != nil {
			t.Fatal(err)
		}
		s, err := prepare(&spool.Spec{Config: b, Cwd: "/w"}, &Options{}, new(eventList))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: %v", tt.config, err)
			}
			continue
		}
		if err != nil || s.duplex != tt.duplex {
			t.Errorf("%s: duplex %v, %v", b, s != nil && s.duplex, err)
		}
	}
}
