package agents

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// printed runs a fake agent that prints lines and exits, and returns how the
// turn ended.
func printed(t *testing.T, name string, code int, lines ...string) (spool.Done, *enginetest.Log) {
	t.Helper()
	return scripted(t, agent.Config{Agent: name}, printLines(lines...)+"exit "+strconv.Itoa(code)+"\n")
}

// scripted does so with a whole script, in exec mode.
func scripted(t *testing.T, c agent.Config, script string) (spool.Done, *enginetest.Log) {
	t.Helper()
	c.Mode, c.Program = agent.ModeExec, fakeCLI(t, script)
	r := converse(t, newEngine(t), c)
	d := r.ask("Please do the task.")
	wellFormed(t, r.log.All(t))
	return d, r.log
}

// arguments returns what a fake agent is called with, and its standard input.
func arguments(t *testing.T, c agent.Config, prompt string) (argv []string, stdin string) {
	t.Helper()
	dir := t.TempDir()
	c.Mode = agent.ModeExec
	c.Program = fakeCLI(t, `for a in "$@"; do printf '%s\0' "$a"; done > `+dir+`/argv; cat > `+dir+`/stdin; exit 1`)
	r := converse(t, newEngine(t), c)
	done := r.ask(prompt)
	b, err := os.ReadFile(filepath.Join(dir, "argv"))
	if err != nil {
		t.Fatalf("%v; the turn ended with %+v", err, done)
	}
	in, err := os.ReadFile(filepath.Join(dir, "stdin"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), string(in)
}

func TestMustHold(t *testing.T) {
	const thread = `{"type":"thread.started","thread_id":"thread-1"}`
	const begun = `{"type":"turn.started"}`
	const over = `{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":1}}`
	message := func(text, phase string) string {
		if phase != "" {
			phase = `,"phase":"` + phase + `"`
		}
		return `{"type":"item.completed","item":{"id":"m-` + text[:3] + `","type":"agent_message","text":"` + text + `"` + phase + `}}`
	}

	t.Run("codex_exec_flags_after_exec", func(t *testing.T) {
		argv, stdin := arguments(t, agent.Config{Agent: agent.Codex}, "hello")
		want := []string{"-c", "notify=[]", "exec", "--json", "--skip-git-repo-check", "--color=never", "-"}
		if d := cmp.Diff(want, argv); d != "" {
			t.Errorf("argv (-want +got):\n%s", d)
		}
		if stdin != "hello" {
			t.Errorf("stdin is %q", stdin)
		}
		argv, _ = arguments(t, agent.Config{Agent: agent.Codex, Model: "m", Effort: "high", Profile: "p", Sandbox: "read-only",
			Resume: "id", Extra: []string{"-c", "x=1"}}, "-x")
		want = []string{"-c", "notify=[]", "-c", "x=1", "--profile", "p", "--model", "m", "-c", "model_reasoning_effort=high",
			"-s", "read-only", "exec", "--json", "--skip-git-repo-check", "--color=never", "resume", "id", "-"}
		if d := cmp.Diff(want, argv); d != "" {
			t.Errorf("argv (-want +got):\n%s", d)
		}
	})

	t.Run("find_exec_only_flag", func(t *testing.T) {
		_, err := tryConverse(t, newEngine(t), agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t, ""), Extra: []string{"--json"}}, spool.Limits{})
		if err == nil || !strings.Contains(err.Error(), `"--json"`) {
			t.Errorf("start with an option of exec: %v", err)
		}
	})

	t.Run("preserves_warning_order", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, `{"type":"error","message":"warning one"}`, thread, message("hello", ""))
		want := []spool.Kind{spool.KindNotice, spool.KindStarted, agent.KindMessage, spool.KindDone, spool.KindExited}
		if d := cmp.Diff(want, kinds(t, log)); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		n := events[spool.Notice](t, log, spool.KindNotice)[0]
		if n.Text != "warning one" || n.Level != "warning" {
			t.Errorf("notice is %+v", n)
		}
		if d.Outcome != spool.TurnOK || d.Answer != "hello" || d.Resume != "thread-1" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("reconnect_notice_is_non_fatal", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, thread, begun, `{"type":"error","message":"Reconnecting... 1/5"}`, message("hello", ""), over)
		if got := events[agent.Retry](t, log, agent.KindRetry); len(got) != 1 || got[0].Attempt != 1 || got[0].Max != 5 {
			t.Errorf("retries are %+v", got)
		}
		if d.Outcome != spool.TurnOK || d.Answer != "hello" {
			t.Errorf("done is %+v", d)
		}
		if n := log.Notices(t); n != nil {
			t.Errorf("notices are %v", n)
		}
	})

	t.Run("reconnect_notice_updates_phase", func(t *testing.T) {
		_, log := printed(t, agent.Codex, 0, thread, begun,
			`{"type":"error","message":"Reconnecting... 1/5"}`, `{"type":"error","message":"Reconnecting... 2/5"}`, message("hello", ""), over)
		got := events[agent.Retry](t, log, agent.KindRetry)
		if len(got) != 2 || got[0].Attempt != 1 || got[1].Attempt != 2 {
			t.Errorf("retries are %+v", got)
		}
	})

	t.Run("reconnect_notice_before_the_thread", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, `{"type":"error","message":"Reconnecting... 1/5"}`, thread, begun,
			`{"type":"error","message":"Reconnecting... 2/5"}`, message("hello", ""), over)
		want := []spool.Kind{agent.KindRetry, spool.KindStarted, agent.KindAction, agent.KindRetry, agent.KindMessage, agent.KindAction, agent.KindUsage, spool.KindDone, spool.KindExited}
		if d := cmp.Diff(want, kinds(t, log)); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		if d.Outcome != spool.TurnOK || d.Answer != "hello" || d.Resume != "thread-1" || log.Notices(t) != nil {
			t.Errorf("done is %+v, notices are %v", d, log.Notices(t))
		}
	})

	t.Run("reconnect_notice_without_turn_completed", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, thread, begun, `{"type":"error","message":"Reconnecting... 1/5"}`, message("hello", ""))
		if got := events[agent.Retry](t, log, agent.KindRetry); len(got) != 1 {
			t.Errorf("retries are %+v", got)
		}
		if d.Outcome != spool.TurnOK || d.Answer != "hello" || d.Resume != "thread-1" {
			t.Errorf("done is %+v", d)
		}
		// Without an answer the last retry is where codex gave up.
		d, _ = printed(t, agent.Codex, 1, thread, begun, `{"type":"error","message":"Reconnecting... 5/5"}`)
		if d.Outcome == spool.TurnOK || d.Error == "" || d.Resume != "thread-1" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("prefers_final_answer_phase", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, thread, begun, message("looking", "commentary"), message("forty-two", "final_answer"),
			message("by the way", ""), over)
		if d.Answer != "forty-two" {
			t.Errorf("answer is %q", d.Answer)
		}
		said := events[agent.Message](t, log, agent.KindMessage)
		if len(said) != 3 || said[0].Phase != agent.PhaseCommentary || said[1].Phase != agent.PhaseFinal || said[2].Phase != "" {
			t.Errorf("messages are %+v", said)
		}
		if a := events[agent.Action](t, log, agent.KindAction); len(a) != 2 || a[0].Kind != agent.ActionTurn || a[0].ID != "turn_0" {
			t.Errorf("actions are %+v", a)
		}
	})

	t.Run("legacy_agent_message_no_phase", func(t *testing.T) {
		if d, _ := printed(t, agent.Codex, 0, thread, begun, message("first", ""), message("second", ""), over); d.Answer != "second" {
			t.Errorf("answer is %q", d.Answer)
		}
	})

	t.Run("collab_tool_call_does_not_break_stream", func(t *testing.T) {
		d, log := printed(t, agent.Codex, 0, thread, begun,
			`{"type":"item.started","item":{"id":"c1","type":"collab_tool_call","tool":"spawn_agent","sender_thread_id":"x","receiver_thread_ids":["y"],"prompt":"look","agents_states":{},"status":"in_progress"}}`,
			`{"type":"item.completed","item":{"id":"c1","type":"collab_tool_call","tool":"spawn_agent","sender_thread_id":"x","receiver_thread_ids":["y"],"prompt":"look","agents_states":{},"status":"completed"}}`,
			message("done", ""), over)
		if d.Outcome != spool.TurnOK || d.Answer != "done" {
			t.Errorf("done is %+v", d)
		}
		a := events[agent.Action](t, log, agent.KindAction)
		if !slices.ContainsFunc(a, func(a agent.Action) bool { return a.Kind == agent.ActionSubagent && a.Phase == agent.ActionCompleted }) {
			t.Errorf("actions are %+v", a)
		}
	})

	t.Run("unknown_item_type_does_not_break_stream", func(t *testing.T) {
		const strange = `{"type":"item.completed","item":{"id":"x1","type":"hologram","depth":3}}`
		d, log := printed(t, agent.Codex, 0, thread, begun, strange, message("done", ""), over)
		if d.Outcome != spool.TurnOK || d.Answer != "done" {
			t.Errorf("done is %+v", d)
		}
		n := events[spool.Notice](t, log, spool.KindNotice)
		if len(n) != 1 || n[0].Code != talk.NoticeUnknown || string(n[0].Data) != strange {
			t.Errorf("notices are %+v", n)
		}
	})

	t.Run("includes_stderr_reason", func(t *testing.T) {
		d, _ := scripted(t, agent.Config{Agent: agent.Codex}, "echo 'the reason: no such profile' >&2\nexit 1\n")
		if d.Outcome != spool.TurnError || !strings.Contains(d.Error, "codex exec failed (rc=1).") {
			t.Errorf("done is %+v", d)
		}
		if strings.Contains(d.Error, "no such profile") {
			t.Errorf("error has standard error in it: %q", d.Error)
		}
		if d.Stderr != "the reason: no such profile" || d.ExitCode == nil || *d.ExitCode != 1 {
			t.Errorf("done is %+v", d)
		}
	})
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config agent.Config
		prompt string
		want   []string
	}{
		{"claude", agent.Config{Agent: agent.Claude}, "hi",
			[]string{"-p", "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash,Read,Edit,Write"}},
		{"claude_all", agent.Config{Agent: agent.Claude, Resume: "id", Fork: true, Model: "m", Effort: "max", Permissions: "plan",
			AllowedTools: []string{"Read"}, Budget: agent.Budget{Steps: 3, CostUSD: 0.5}, SkipPermissions: true, Deltas: true, Extra: []string{"--x"}}, "--help",
			[]string{"-p", "--output-format", "stream-json", "--verbose", "--resume", "id", "--fork-session", "--model", "m", "--effort", "max",
				"--permission-mode", "plan", "--allowedTools", "Read", "--max-turns", "3", "--max-budget-usd", "0.5",
				"--dangerously-skip-permissions", "--include-partial-messages", "--x"}},
		{"opencode", agent.Config{Agent: agent.OpenCode}, "hi", []string{"run", "--format", "json"}},
		{"opencode_all", agent.Config{Agent: agent.OpenCode, Resume: "ses_1", Fork: true, Model: "p/m", Effort: "high", Profile: "build", SkipPermissions: true, Extra: []string{"--thinking"}}, "-v",
			[]string{"run", "--format", "json", "--session", "ses_1", "--fork", "--model", "p/m", "--variant", "high", "--agent", "build", "--auto", "--thinking"}},
		{"pi", agent.Config{Agent: agent.Pi}, "hi", []string{"--print", "--mode", "json"}},
		{"pi_all", agent.Config{Agent: agent.Pi, Resume: "01a1dca0-8e82-74d5-a83d-65a5a95d8ef7", Provider: "p", Model: "m", Effort: "low", Extra: []string{"--offline"}}, "@x",
			[]string{"--offline", "--print", "--mode", "json", "--provider", "p", "--model", "m", "--thinking", "low",
				"--session", "01a1dca0-8e82-74d5-a83d-65a5a95d8ef7"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			argv, stdin := arguments(t, tt.config, tt.prompt)
			if d := cmp.Diff(tt.want, argv); d != "" {
				t.Errorf("argv (-want +got):\n%s", d)
			}
			if stdin != tt.prompt {
				t.Errorf("stdin is %q, want %q", stdin, tt.prompt)
			}
		})
	}
}

// Everybody on a machine sees the arguments of a process, and an argument cannot
// be as long as a prompt.
func TestPromptsGoToStandardInput(t *testing.T) {
	long := strings.Repeat("x", 200<<10)
	for _, name := range []string{agent.Claude, agent.OpenCode, agent.Pi, agent.Codex} {
		for _, prompt := range []string{"the secret plan", "--help", "-", "@file", long, "a\x00b"} {
			argv, stdin := arguments(t, agent.Config{Agent: name}, prompt)
			if name == agent.Codex && argv[len(argv)-1] == "-" { // which means standard input
				argv = argv[:len(argv)-1]
			}
			if stdin != prompt || slices.Contains(argv, "--") || slices.Contains(argv, prompt) || strings.Contains(strings.Join(argv, " "), "secret") {
				t.Errorf("%s: arguments are %q, standard input has %d bytes", name, argv, len(stdin))
			}
		}
	}
}
