package agents

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/polltest"
)

// usageOf decodes what a turn used.
func usageOf(t *testing.T, d spool.Done) agent.Usage {
	t.Helper()
	var u agent.Usage
	if err := json.Unmarshal(d.Usage, &u); err != nil {
		t.Fatalf("usage %q: %v", d.Usage, err)
	}
	return u
}

// ofTranscript translates a transcript again.
func ofTranscript(t *testing.T, base string) (spool.Done, []spool.Event) {
	t.Helper()
	base = filepath.Join("testdata/transcripts", base)
	got := readTranscript(t, base, transcriptAgents[filepath.Base(filepath.Dir(base))]).translate(t)
	i := slices.IndexFunc(got, func(e spool.Event) bool { return e.Kind == spool.KindDone })
	return enginetest.Data[spool.Done](t, got[i]), got
}

func decoded[T any](t *testing.T, list []spool.Event, kind spool.Kind) []T {
	t.Helper()
	var got []T
	for _, e := range list {
		if e.Kind == kind {
			got = append(got, enginetest.Data[T](t, e))
		}
	}
	return got
}

// alive reports whether a process that should have ended is there and no zombie. It
// waits: a process leaves its control group a moment before it has ended.
func alive(pid int) bool {
	return !polltest.Holds(func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || syscall.Kill(pid, 0) != nil || strings.Contains(string(stat), ") Z ")
	})
}

// pidIn waits for a file with a process id.
func pidIn(t *testing.T, file string) int {
	t.Helper()
	var line string
	polltest.Until(t, "a process id in "+file, func() bool {
		b, _ := os.ReadFile(file) // which does not exist at first
		line = string(b)
		return strings.HasSuffix(line, "\n")
	})
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

const (
	codexThread = `{"type":"thread.started","thread_id":"thread-1"}`
	codexTurn   = `{"type":"turn.started"}`
	codexOver   = `{"type":"turn.completed","usage":{"input_tokens":270,"cached_input_tokens":120,"output_tokens":27}}`
	claudeInit  = `{"type":"system","subtype":"init","session_id":"s-1","model":"m","cwd":"/","tools":["Bash"]}`
	claudeOver  = `{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s-1"}`
)

func codexSays(id, text string) string {
	return fmt.Sprintf(`{"type":"item.completed","item":{"id":%q,"type":"agent_message","text":%q}}`, id, text)
}

// TestDrift has a test for each way in which today's agents differ from what
// those before us expected of them.
func TestDrift(t *testing.T) {
	t.Run("01_codex_reconnect_has_a_reason", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, codexThread, codexTurn,
			`{"type":"error","message":"Reconnecting... 2/5 (stream disconnected before completion: (inner) x)"}`, codexSays("m", "hi"), codexOver)
		got := events[agent.Retry](t, log, agent.KindRetry)
		want := agent.Retry{Attempt: 2, Max: 5, Reason: "stream disconnected before completion: (inner) x", Class: agent.ClassNetwork}
		if len(got) != 1 || got[0] != want || d.Outcome != spool.TurnOK || log.Notices(t) != nil {
			t.Errorf("retries are %+v, done is %+v", got, d)
		}
	})

	t.Run("02_codex_exec_has_no_phase", func(t *testing.T) {
		d, got := ofTranscript(t, "codex/success")
		said := decoded[agent.Message](t, got, agent.KindMessage)
		if len(said) != 2 || said[0].Phase != "" || d.Answer != said[1].Text {
			t.Errorf("messages are %+v, answer is %q", said, d.Answer)
		}
	})

	t.Run("03_codex_usage_is_the_total_of_the_thread", func(t *testing.T) {
		script := `case "$*" in *resume*) n=660 ;; *) n=270 ;; esac
echo '` + codexThread + `'
echo '{"type":"turn.completed","usage":{"input_tokens":'$n',"cached_input_tokens":0,"cache_write_input_tokens":3,"output_tokens":10,"reasoning_output_tokens":4}}'`
		e := newEngine(t)
		c := agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t, script)}
		r := converse(t, e, c)
		one, two := r.say("one"), r.say("two")
		r.eof()
		u1, u2 := usageOf(t, r.done(one)), usageOf(t, r.done(two))
		if u1.Turn.Input != 270 || u1.Turn.CacheWrite != 3 || u1.Turn.Reasoning != 4 || u2.Turn.Input != 390 || u2.Run.Input != 660 || u2.Session.Input != 660 {
			t.Errorf("usage is %+v and %+v", u1.Turn, u2.Turn)
		}
		// Another run that goes on with the session knows what it had used,
		c.Resume = "thread-1"
		u3 := usageOf(t, converse(t, e, c).ask("three"))
		if u3.Turn == nil || u3.Turn.Input != 0 || u3.Session.Input != 660 {
			t.Errorf("usage of the third turn is %+v", u3)
		}
		// and one that does not know does not guess.
		u4 := usageOf(t, converse(t, newEngine(t), c).ask("four"))
		if u4.Turn != nil || u4.Run != nil || u4.Session.Input != 660 {
			t.Errorf("usage of a stranger's turn is %+v", u4)
		}
	})

	t.Run("04_codex_file_change_starts", func(t *testing.T) {
		_, log := printed(t, agent.Codex, 0, codexThread, codexTurn,
			`{"type":"item.started","item":{"id":"f","type":"file_change","changes":[{"path":"a.txt","kind":"add"}],"status":"in_progress"}}`,
			`{"type":"item.completed","item":{"id":"f","type":"file_change","changes":[{"path":"a.txt","kind":"add"}],"status":"completed"}}`, codexOver)
		var phases []agent.ActionPhase
		for _, a := range events[agent.Action](t, log, agent.KindAction) {
			if a.Kind == agent.ActionFileChange {
				phases = append(phases, a.Phase)
				if a.Title != "a.txt" || len(a.Changes) != 1 || a.Changes[0].Kind != "add" {
					t.Errorf("action is %+v", a)
				}
			}
		}
		if !slices.Equal(phases, []agent.ActionPhase{agent.ActionStarted, agent.ActionCompleted}) {
			t.Errorf("phases are %v", phases)
		}
	})

	t.Run("05_codex_retry_repeats_the_message", func(t *testing.T) {
		lines := []string{codexThread, codexTurn, codexSays("m0", "Partial")}
		for i := range 5 {
			lines = append(lines, fmt.Sprintf(`{"type":"error","message":"Reconnecting... %d/5 (cut)"}`, i+1), codexSays(fmt.Sprintf("m%d", i+1), "Partial"))
		}
		d, log := printed(t, agent.Codex, 0, append(lines, codexSays("m9", "Partial and whole"), codexOver)...)
		said := events[agent.Message](t, log, agent.KindMessage)
		if len(said) != 2 || d.Answer != "Partial and whole" {
			t.Errorf("messages are %+v, answer is %q", said, d.Answer)
		}
	})

	t.Run("06_codex_interrupted_says_nothing", func(t *testing.T) {
		r := converse(t, newEngine(t), agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t,
			"trap 'exit 1' INT\n"+printLines(codexThread, codexTurn)+"while :; do sleep 1 & wait $!; done\n")})
		turn := r.say("go")
		r.until(agent.KindAction)
		r.control(spool.Control{Op: spool.ControlInterrupt})
		d := r.done(turn)
		if d.Outcome != spool.TurnInterrupted || d.EndedBy != "interrupt" || d.StoppedWith != "SIGINT" || d.ExitCode == nil || *d.ExitCode != 1 {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("07_codex_web_search_has_two_ids", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, codexThread, codexTurn,
			`{"type":"item.started","item":{"id":"item_1","type":"web_search","id":"ws_1","query":"go","action":{"type":"search"}}}`,
			`{"type":"item.completed","item":{"id":"item_1","type":"web_search","id":"ws_1","query":"go fuzzing","action":{"type":"search"}}}`,
			codexSays("m", "found"), codexOver)
		var got []agent.Action
		for _, a := range events[agent.Action](t, log, agent.KindAction) {
			if a.Kind == agent.ActionWebSearch {
				got = append(got, a)
			}
		}
		if len(got) != 2 || got[0].ID != got[1].ID || got[1].Title != "go fuzzing" || d.Answer != "found" {
			t.Errorf("actions are %+v, done is %+v", got, d)
		}
	})

	t.Run("08_codex_is_not_asked_for_what_is_gone", func(t *testing.T) {
		argv, _ := arguments(t, agent.Config{Agent: agent.Codex, Permissions: "untrusted"}, "x")
		for _, a := range argv {
			if strings.Contains(a, "approval_policy") || a == "mcp-server" || strings.Contains(a, "wire_api") {
				t.Errorf("arguments are %q", argv)
			}
		}
	})

	t.Run("09_claude_new_lines", func(t *testing.T) {
		const summary = `{"type":"tool_use_summary","summary":"x"}`
		const state = `{"type":"system","subtype":"task_started","task_id":"t"}`
		d, log := printed(t, agent.Claude, 0, claudeInit,
			`{"type":"system","subtype":"api_retry","attempt":1,"max_retries":10,"retry_delay_ms":557.4,"error_status":529,"error":"overloaded"}`,
			`{"type":"system","subtype":"thinking_tokens","estimated_tokens":8}`, `{"type":"system","subtype":"status"}`,
			`{"type":"system","subtype":"permission_denied","tool_name":"Bash"}`, summary, state, claudeOver)
		want := agent.Retry{Attempt: 1, Max: 10, DelayMs: 557, Status: 529, Reason: "overloaded", Class: agent.ClassOverloaded}
		if got := events[agent.Retry](t, log, agent.KindRetry); len(got) != 1 || got[0] != want {
			t.Errorf("retries are %+v", got)
		}
		n := events[spool.Notice](t, log, spool.KindNotice)
		if len(n) != 3 || n[0].Code != talk.NoticeDenied || n[0].Level != "warning" || string(n[1].Data) != summary || string(n[2].Data) != state {
			t.Errorf("notices are %+v", n)
		}
		if d.Outcome != spool.TurnOK {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("10_claude_new_content_hides_nothing", func(t *testing.T) {
		d, log := printed(t, agent.Claude, 0, claudeInit,
			`{"type":"assistant","message":{"id":"m","content":[{"type":"hologram","depth":3},{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}},{"type":"text","text":7}]}}`,
			`{"type":"user","message":{"role":"user","content":[{"type":"aura"},{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"out"},{"type":"smell"}],"is_error":false}]}}`, claudeOver)
		a := events[agent.Action](t, log, agent.KindAction)
		if len(a) != 2 || a[0].Title != "ls" || a[1].Phase != agent.ActionCompleted || a[1].Output != "out" || !*a[1].OK {
			t.Errorf("actions are %+v", a)
		}
		if n := events[spool.Notice](t, log, spool.KindNotice); len(n) != 2 || string(n[0].Data) != `{"type":"hologram","depth":3}` {
			t.Errorf("notices are %+v", n)
		}
		if d.Outcome != spool.TurnOK {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("11_claude_says_why_in_many_places", func(t *testing.T) {
		for _, tt := range []struct{ line, want string }{
			{`{"type":"result","subtype":"error_during_execution","is_error":true,"errors":["first","second"],"result":"text","terminal_reason":"r","session_id":"s-1"}`, "first; second"},
			{`{"type":"result","subtype":"success","is_error":true,"errors":[],"result":"text","terminal_reason":"r","session_id":"s-1"}`, "text"},
			{`{"type":"result","subtype":"error_x","is_error":true,"terminal_reason":"blocking_limit","session_id":"s-1"}`, "blocking_limit"},
			{`{"type":"result","subtype":"error_x","is_error":true,"session_id":"s-1"}`, "claude run failed (error_x)"},
		} {
			if d, _ := printed(t, agent.Claude, 1, claudeInit, tt.line); d.Error != tt.want || d.Outcome != spool.TurnError {
				t.Errorf("error of %s is %q (%s)", tt.line, d.Error, d.Outcome)
			}
		}
	})

	t.Run("12_claude_failure_is_called_success", func(t *testing.T) {
		if d, _ := ofTranscript(t, "claude/auth-failure"); d.Outcome != spool.TurnError || d.ErrorClass != agent.ClassAuth {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("13_claude_cost_is_a_running_total", func(t *testing.T) {
		script := `case "$*" in *resume*) n=0.003738 ;; *) n=0.001644 ;; esac
echo '` + claudeInit + `'
echo '{"type":"result","is_error":false,"subtype":"success","result":"x","session_id":"s-1","total_cost_usd":'$n',"usage":{"input_tokens":10,"output_tokens":5},"modelUsage":{"m":{"inputTokens":10,"outputTokens":5}}}'`
		e := newEngine(t)
		c := agent.Config{Agent: agent.Claude, Mode: agent.ModeExec, Program: fakeCLI(t, script)}
		u1 := usageOf(t, converse(t, e, c).ask("one"))
		c.Resume = "s-1"
		u2 := usageOf(t, converse(t, e, c).ask("two"))
		if got := fmt.Sprintf("%.6f %.6f %.6f", u1.Turn.CostUSD, u2.Turn.CostUSD, u2.Session.CostUSD); got != "0.001644 0.002094 0.003738" {
			t.Errorf("costs are %s", got)
		}
	})

	t.Run("14_claude_bad_resume_has_no_init", func(t *testing.T) {
		d, log := printed(t, agent.Claude, 1, `{"type":"result","subtype":"error_during_execution","is_error":true,"session_id":"s-9","num_turns":0,"errors":["No conversation found with session ID: s-9"]}`)
		if d.Outcome != spool.TurnError || d.ErrorClass != agent.ClassSession || !strings.Contains(d.Error, "No conversation found") {
			t.Errorf("done is %+v", d)
		}
		if k := kinds(t, log); slices.Contains(k, spool.KindStarted) {
			t.Errorf("events are %v", k)
		}
	})

	t.Run("15_claude_retries_for_minutes", func(t *testing.T) {
		_, got := ofTranscript(t, "claude/auth-failure")
		if r := decoded[agent.Retry](t, got, agent.KindRetry); len(r) != 2 || r[0].Status != 401 || r[0].Class != agent.ClassAuth {
			t.Errorf("retries are %+v", r)
		}
		d, _ := scripted(t, agent.Config{Agent: agent.Claude, Retries: 2}, `echo "$CLAUDE_CODE_MAX_RETRIES" >&2; exit 1`)
		if d.Stderr != "2" {
			t.Errorf("the limit of retries is %q", d.Stderr)
		}
	})

	t.Run("16_claude_interrupted_exits_with_zero", func(t *testing.T) {
		const aborted = `{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","errors":["[ede_diagnostic] x"],"session_id":"s-1"}`
		for name, last := range map[string]string{"with_result": "echo '" + aborted + "'; ", "without_result": ""} {
			t.Run(name, func(t *testing.T) {
				r := converse(t, newEngine(t), agent.Config{Agent: agent.Claude, Mode: agent.ModeExec, Program: fakeCLI(t,
					"stop() { "+last+"exit 0; }\ntrap stop INT\n"+printLines(claudeInit)+"while :; do sleep 1 & wait $!; done\n")})
				turn := r.say("go")
				r.until(spool.KindStarted)
				r.control(spool.Control{Op: spool.ControlInterrupt})
				if d := r.done(turn); d.Outcome != spool.TurnInterrupted || *d.ExitCode != 0 || d.StoppedWith != "SIGINT" {
					t.Errorf("done is %+v", d)
				}
			})
		}
	})

	t.Run("17_opencode_id_from_any_line", func(t *testing.T) {
		d, log := printed(t, agent.OpenCode, 1, `{"type":"error","sessionID":"ses_1","error":{"name":"APIError","data":{"message":"no","statusCode":401}}}`)
		if k := kinds(t, log); k[0] != spool.KindStarted || d.Resume != "ses_1" || d.ErrorClass != agent.ClassAuth {
			t.Errorf("events are %v, done is %+v", k, d)
		}
	})

	t.Run("18_opencode_answer_is_the_last_message", func(t *testing.T) {
		if d, _ := ofTranscript(t, "opencode/success"); d.Answer != "All done: the command printed hi." {
			t.Errorf("answer is %q", d.Answer)
		}
	})

	t.Run("19_opencode_usage_is_the_sum_of_steps", func(t *testing.T) {
		d, _ := ofTranscript(t, "opencode/success")
		if u := usageOf(t, d); u.Turn.Input != 270 || u.Turn.Output != 27 || u.Turn.CacheRead != 120 || fmt.Sprintf("%.6f", u.Turn.CostUSD) != "0.000204" {
			t.Errorf("usage is %+v", u.Turn)
		}
	})

	t.Run("20_pi_agent_end_is_not_the_end", func(t *testing.T) {
		d, got := ofTranscript(t, "pi-earendil/reconnect")
		if r := decoded[agent.Retry](t, got, agent.KindRetry); len(r) != 2 || d.Outcome != spool.TurnOK || d.Answer != "Third time lucky." {
			t.Errorf("retries are %+v, done is %+v", r, d)
		}
		// Older ones do not say whether they try again.
		failed := `{"type":"message_end","message":{"role":"assistant","content":[],"stopReason":"error","errorMessage":"terminated"}}`
		session, start, end := `{"type":"session","id":"p-1"}`, `{"type":"agent_start"}`, `{"type":"agent_end","messages":[]}`
		retry := `{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":2000,"errorMessage":"terminated"}`
		said := `{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"yes"}],"stopReason":"stop"}}`
		if d, _ := printed(t, agent.Pi, 0, session, start, failed, end, retry, start, said, end); d.Outcome != spool.TurnOK || d.Answer != "yes" {
			t.Errorf("done is %+v", d)
		}
		if d, _ := printed(t, agent.Pi, 0, session, start, failed, end); d.Outcome != spool.TurnError || d.Error != "terminated" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("21_pi_ids_are_kept_whole", func(t *testing.T) {
		const id = "01a1dca0-8e82-74d5-a83d-65a5a95d8ef7"
		d, _ := printed(t, agent.Pi, 0, `{"type":"session","id":"`+id+`"}`, `{"type":"agent_end","willRetry":false}`)
		argv, _ := arguments(t, agent.Config{Agent: agent.Pi, Resume: id}, "x")
		if d.Resume != id || !slices.Contains(argv, id) {
			t.Errorf("resume is %q, arguments are %q", d.Resume, argv)
		}
	})

	t.Run("22_pi_exits_with_zero_on_errors", func(t *testing.T) {
		for name, class := range map[string]string{"auth-failure": agent.ClassAuth, "bad-model": agent.ClassModel} {
			if d, _ := ofTranscript(t, "pi-earendil/"+name); d.Outcome != spool.TurnError || *d.ExitCode != 0 || d.ErrorClass != class {
				t.Errorf("%s: done is %+v", name, d)
			}
		}
	})

	t.Run("23_pi_new_lines", func(t *testing.T) {
		d, got := ofTranscript(t, "pi-earendil/reconnect") // has entry_appended, agent_settled, a system message, pending
		if n := decoded[spool.Notice](t, got, spool.KindNotice); n != nil || d.Outcome != spool.TurnOK {
			t.Errorf("notices are %+v", n)
		}
		argv, stdin := arguments(t, agent.Config{Agent: agent.Pi}, "--help")
		if slices.Contains(argv, "--help") || stdin != "--help" {
			t.Errorf("arguments are %q, standard input is %q", argv, stdin)
		}
	})

	t.Run("24_pi_repeats_a_message_as_it_grows", func(t *testing.T) {
		script := `echo '{"type":"session","id":"p-1"}'
long=$(head -c 100000 /dev/zero | tr '\0' x)
for i in 1 2 3 4 5; do echo '{"type":"message_update","assistantMessageEvent":{"type":"text_delta","delta":"d"},"message":{"role":"assistant","content":[{"type":"text","text":"'$long'"}]}}'; done
echo '{"type":"agent_end","willRetry":false}'`
		_, log := scripted(t, agent.Config{Agent: agent.Pi}, script)
		if k := kinds(t, log); len(k) != 3 {
			t.Errorf("events are %v", k)
		}
		_, log = scripted(t, agent.Config{Agent: agent.Pi, Deltas: true}, script)
		if m := events[agent.Message](t, log, agent.KindMessage); len(m) != 5 || !m[0].Delta || m[0].Text != "d" {
			t.Errorf("messages are %+v", m)
		}
	})

	t.Run("25_opencode_refused_just_stops", func(t *testing.T) {
		d, _ := printed(t, agent.OpenCode, 0,
			`{"type":"step_start","sessionID":"ses_1","part":{"id":"p1","messageID":"m1","type":"step-start"}}`,
			`{"type":"text","sessionID":"ses_1","part":{"id":"p2","messageID":"m1","type":"text","text":"Half way."}}`,
			`{"type":"tool_use","sessionID":"ses_1","part":{"type":"tool","tool":"bash","callID":"c1","messageID":"m1","state":{"status":"error","input":{"command":"rm x"},"error":"The user rejected permission to use this specific tool call."}}}`,
			`{"type":"step_finish","sessionID":"ses_1","part":{"reason":"tool-calls","messageID":"m1","type":"step-finish"}}`)
		if d.Outcome != spool.TurnRefused || d.ErrorClass != agent.ClassPermission || *d.ExitCode != 0 {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("26_opencode_begins_again_for_ever", func(t *testing.T) {
		r := converse(t, newEngine(t), agent.Config{Agent: agent.OpenCode, Mode: agent.ModeExec, Stall: agent.Stall{ToolMs: 300}, Program: fakeCLI(t,
			`while :; do echo '{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}'; sleep 0.01; done`)})
		d := r.done(r.say("go"))
		if d.Outcome != agent.TurnStalled || len(events[agent.Retry](t, r.log, agent.KindRetry)) == 0 {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("27_no_signal_reaches_the_command", func(t *testing.T) {
		for _, name := range []string{agent.Codex, agent.OpenCode} {
			t.Run(name, func(t *testing.T) {
				dir := t.TempDir()
				r := converse(t, newEngine(t), agent.Config{Agent: name, Mode: agent.ModeExec, Program: fakeCLI(t,
					"setsid sh -c 'echo $$ > "+dir+"/pid; trap \"\" INT TERM; while :; do sleep 1000; done' &\n"+
						printLines(codexThread, codexTurn)+"wait; sleep 1000\n")})
				turn := r.say("go")
				pid := pidIn(t, dir+"/pid")
				r.control(spool.Control{Op: spool.ControlStop})
				d := r.done(turn)
				if alive(pid) {
					t.Errorf("the command lives on as process %d", pid)
				}
				enginetest.Wait(t, r.s)
				if d.Outcome != spool.TurnCancelled || !slices.Contains(r.log.Notices(t), talk.NoticeTreeKill) {
					t.Errorf("done is %+v, notices are %v", d, r.log.Notices(t))
				}
			})
		}
	})
}
