package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/takopi"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// project shows a log as takopi would.
func project(name string, events []spool.Event) []takopi.Event {
	v := takopi.New(name)
	var out []takopi.Event
	for _, e := range events {
		out = append(out, v.Project(e)...)
	}
	return out
}

// takopiText shows events one per line.
func takopiText(t testing.TB, events []takopi.Event) string {
	t.Helper()
	var b strings.Builder
	for _, e := range events {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// checkTakopi checks takopi's own invariants: one started at most, one
// completed, always and last, with the token of started.
func checkTakopi(t testing.TB, events []takopi.Event) {
	t.Helper()
	var token *sessions.Token
	for i, e := range events {
		switch e.Type {
		case takopi.Started:
			if token != nil {
				t.Errorf("started twice")
			}
			token = e.Resume
		case takopi.Acted:
			if e.Action == nil || e.Action.ID == "" || e.Action.Kind == "" || e.Phase == "" {
				t.Errorf("half an action: %+v", e)
			}
		case takopi.Completed:
			if i != len(events)-1 || e.OK == nil || e.Answer == nil {
				t.Errorf("completed is event %d of %d: %+v", i+1, len(events), e)
			}
			if token != nil && (e.Resume == nil || *e.Resume != *token) {
				t.Errorf("completed with %v, started with %v", e.Resume, token)
			}
		}
	}
	if len(events) == 0 || events[len(events)-1].Type != takopi.Completed {
		t.Error("not completed")
	}
}

func TestTakopiOfTranscripts(t *testing.T) {
	for _, tr := range readTranscripts(t) {
		t.Run(strings.TrimPrefix(tr.name, transcripts), func(t *testing.T) {
			got := project(tr.agent, tr.translate(t))
			checkTakopi(t, got)
			checkGolden(t, tr.name+".takopi.golden", takopiText(t, got))
		})
	}
}

// The view is the same whichever way an agent was talked to.
func TestTakopiOfDuplexTranscripts(t *testing.T) {
	for name, outputs := range duplexOutputs(t) {
		for _, output := range outputs {
			checkTakopi(t, project(name, translateDuplex(t, name, output, talk.Exit{})))
		}
	}
	var got []string
	for _, e := range project(agent.Codex, translateDuplex(t, agent.Codex, duplexOutputNamed(t, "codex/appserver-turn"), talk.Exit{})) {
		got = append(got, takopiShort(e))
	}
	want := []string{"started 01a1dc84-6a60-79c3-80d0-0433531c2379", `turn turn_0 started ok=- level= "turn started"`,
		`note rs_mock_0 completed ok=true level= "I should run the command first."`, `note msg_mock_0 completed ok=true level= "Running the command."`,
		`command call_mock_t0_0 started ok=- level= "/bin/bash -lc 'echo hi'"`, `command call_mock_t0_0 completed ok=true level= "/bin/bash -lc 'echo hi'"`,
		`completed ok=true answer="All done: the command printed hi." error="" resume=01a1dc84-6a60-79c3-80d0-0433531c2379`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func duplexOutputNamed(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(transcripts + name + ".jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// takopiShort is an event without what a test is not about.
func takopiShort(e takopi.Event) string {
	ok := "-"
	if e.OK != nil {
		ok = fmt.Sprint(*e.OK)
	}
	switch e.Type {
	case takopi.Started:
		return "started " + e.Resume.Value
	case takopi.Completed:
		resume := "-"
		if e.Resume != nil {
			resume = e.Resume.Value
		}
		return fmt.Sprintf("completed ok=%s answer=%q error=%q resume=%s", ok, *e.Answer, e.Error, resume)
	}
	return fmt.Sprintf("%s %s %s ok=%s level=%s %q", e.Action.Kind, e.Action.ID, e.Phase, ok, e.Level, e.Action.Title)
}

// The floor, in takopi's own words.
func TestTakopiFloor(t *testing.T) {
	const thread = `{"type":"thread.started","thread_id":"t1"}`
	const begun = `{"type":"turn.started"}`
	const over = `{"type":"turn.completed","usage":{"input_tokens":5,"cached_input_tokens":2,"output_tokens":1}}`
	said := func(text, phase string) string {
		return fmt.Sprintf(`{"type":"item.completed","item":{"id":"m%d","type":"agent_message","text":%q,"phase":%q}}`, len(text), text, phase)
	}
	tests := []struct {
		name  string
		code  int
		lines []string
		want  []string
	}{
		{"preserves_warning_order", 0, []string{`{"type":"error","message":"warning one"}`, thread, said("hello", "")}, []string{
			`warning codex.note.0 completed ok=false level=warning "warning one"`, "started t1",
			`completed ok=true answer="hello" error="" resume=t1`}},
		{"reconnect_notice_is_non_fatal", 0, []string{thread, begun, `{"type":"error","message":"Reconnecting... 1/5"}`,
			`{"type":"error","message":"Reconnecting... 2/5 (stream disconnected)"}`, said("hello", ""), over}, []string{
			"started t1", `turn turn_0 started ok=- level= "turn started"`,
			`note codex.reconnect started ok=- level=info "Reconnecting... 1/5"`, `note codex.reconnect updated ok=- level=info "Reconnecting... 2/5"`,
			`completed ok=true answer="hello" error="" resume=t1`}},
		{"reconnect_notice_before_the_thread", 0, []string{`{"type":"error","message":"Reconnecting... 1/5"}`, thread, said("hello", "")}, []string{
			`note codex.reconnect started ok=- level=info "Reconnecting... 1/5"`, "started t1",
			`completed ok=true answer="hello" error="" resume=t1`}},
		{"prefers_final_answer_phase", 0, []string{thread, begun, said("thinking aloud", "commentary"), said("answer", "final_answer"), said("by the way", ""), over}, []string{
			"started t1", `turn turn_0 started ok=- level= "turn started"`, `note m14 completed ok=true level= "thinking aloud"`,
			`completed ok=true answer="answer" error="" resume=t1`}},
		{"legacy_agent_message_no_phase", 0, []string{thread, begun, said("one", ""), said("two!", ""), over}, []string{
			"started t1", `turn turn_0 started ok=- level= "turn started"`, `completed ok=true answer="two!" error="" resume=t1`}},
		{"collab_and_unknown_items", 0, []string{thread, `{"type":"item.started","item":{"id":"c","type":"collab_tool_call","tool":"spawn_agent","status":"in_progress"}}`,
			`{"type":"item.completed","item":{"id":"c","type":"collab_tool_call","tool":"spawn_agent","status":"completed"}}`,
			`{"type":"item.completed","item":{"id":"u","type":"hologram"}}`, `not json`, said("done", ""), over}, []string{
			"started t1", `completed ok=true answer="done" error="" resume=t1`}},
		{"includes_stderr_reason", 1, []string{}, []string{
			`warning codex.note.0 completed ok=false level=warning "codex exec failed (rc=1)."`,
			`completed ok=false answer="" error="codex exec failed (rc=1)." resume=-`}},
		{"turn_failed", 1, []string{thread, begun, said("half", ""), `{"type":"turn.failed","error":{"message":"no model"}}`}, []string{
			"started t1", `turn turn_0 started ok=- level= "turn started"`, `completed ok=false answer="half" error="no model" resume=t1`}},
		{"actions", 0, []string{thread,
			`{"type":"item.completed","item":{"id":"r","type":"reasoning","text":"let me see"}}`,
			`{"type":"item.started","item":{"id":"c","type":"command_execution","command":"ls","status":"in_progress"}}`,
			`{"type":"item.completed","item":{"id":"c","type":"command_execution","command":"ls","aggregated_output":"x","exit_code":2,"status":"failed"}}`,
			`{"type":"item.started","item":{"id":"f","type":"file_change","changes":[{"path":"a","kind":"add"}],"status":"in_progress"}}`,
			`{"type":"item.completed","item":{"id":"f","type":"file_change","changes":[{"path":"a","kind":"add"},{"path":"b","kind":"delete"}],"status":"completed"}}`,
			`{"type":"item.completed","item":{"id":"m","type":"mcp_tool_call","server":"docs","tool":"search","status":"completed","result":{"content":[]},"error":null}}`,
			`{"type":"item.completed","item":{"id":"w","type":"web_search","query":"go"}}`,
			`{"type":"item.started","item":{"id":"t","type":"todo_list","items":[{"text":"one","completed":true},{"text":"two","completed":false}]}}`,
			`{"type":"item.updated","item":{"id":"t","type":"todo_list","items":[{"text":"one","completed":true},{"text":"two","completed":true}]}}`,
			said("done", ""), over}, []string{
			"started t1", `note r completed ok=true level= "let me see"`,
			`command c started ok=- level= "ls"`, `command c completed ok=false level= "ls"`, `file_change f completed ok=true level= "a, b"`,
			`tool m completed ok=true level= "docs.search"`, `web_search w completed ok=true level= "go"`,
			`note t started ok=- level= "todo 1/2: two"`, `note t updated ok=- level= "todo 2/2"`,
			`completed ok=true answer="done" error="" resume=t1`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d, log := scripted(t, agent.Config{Agent: agent.Codex}, printLines(tt.lines...)+fmt.Sprintf("echo secret >&2\nexit %d\n", tt.code))
			events := project(agent.Codex, log.All(t))
			checkTakopi(t, events)
			var got []string
			for _, e := range events {
				got = append(got, takopiShort(e))
				if strings.Contains(e.Error, "secret") {
					t.Errorf("standard error is in the error: %q", e.Error)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if d.Stderr != "secret" {
				t.Errorf("standard error has no place of its own: %q", d.Stderr)
			}
		})
	}
}

// Each turn of a run is a run there, with its own start and end.
func TestTakopiOfSeveralTurns(t *testing.T) {
	r := converse(t, newEngine(t), agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t, printLines(
		`{"type":"thread.started","thread_id":"t1"}`,
		`{"type":"item.completed","item":{"id":"m","type":"agent_message","text":"hi"}}`,
		`{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}`))})
	r.done(r.say("one"))
	r.done(r.say("two"))
	r.eof()
	enginetest.Wait(t, r.s)
	var got []string
	for _, e := range project(agent.Codex, r.log.All(t)) {
		got = append(got, takopiShort(e))
	}
	want := []string{"started t1", `completed ok=true answer="hi" error="" resume=t1`, "started t1", `completed ok=true answer="hi" error="" resume=t1`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestTakopiSignalIsANegativeCode(t *testing.T) {
	_, log := scripted(t, agent.Config{Agent: agent.Codex}, "kill -9 $$\n")
	events := project(agent.Codex, log.All(t))
	checkTakopi(t, events)
	if e := events[len(events)-1].Error; e != "codex exec failed (rc=-9)." {
		t.Errorf("error is %q", e)
	}
}
