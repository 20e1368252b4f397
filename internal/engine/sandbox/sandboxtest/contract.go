package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/python"
)

// contract is what holds for every back end.
var contract = []test{
	{"contexts_preserve_configuration", contextsPreserveConfiguration},
	{"runs_code_and_streams_stdio", runsCodeAndStreamsStdio},
	{"wait_bounds_output_buffers", waitBoundsOutputBuffers},
	{"output_limit_can_stop", outputLimitCanStop},
	{"output_is_byte_exact", outputIsByteExact},
	{"output_events_are_text", outputIsText},
	{"info_shows_the_configuration_and_the_status", infoShowsConfiguration},
	{"info_shows_the_isolation", infoShowsIsolation},
	{"emits_stdout_before_exit", emitsStdoutBeforeExit},
	{"reports_prewarm_and_startup_metrics", reportsMetrics},
	{"metrics_are_off_by_default", metricsAreOff},
	{"keeps_streaming_stdin_sessions_alive_until_closed", keepsStdinSessionsAlive},
	{"stdin_belongs_to_its_turn", stdinBelongsToItsTurn},
	{"surfaces_rpc_requests_and_resumes_after_responses", surfacesRPC},
	{"rpc_errors_are_errno_exact", rpcErrors},
	{"rpc_times_out_when_host_never_responds", rpcTimesOut},
	{"what_is_not_offered_is_denied", notOfferedIsDenied},
	{"blocks_network_during_init", blocksNetwork},
	{"wait_timeout_cleans_up_hanging_child", waitTimeoutCleansUp},
	{"uses_configured_default_timeout", usesConfiguredDefaultTimeout},
	{"idle_limit_ends_a_silent_turn", idleLimit},
	{"surfaces_runtime_stderr", surfacesRuntimeStderr},
	{"exit_codes_are_real", exitCodes},
	{"kill_stops_inflight_and_emits_exit", killStopsInflight},
	{"kill_of_the_run_ends_it", killOfTheRun},
	{"input_that_was_not_delivered_has_an_end", undeliveredInput},
	{"interrupt_raises_keyboard_interrupt", interruptRaises},
	{"stateful_turns_share_state_and_fresh_ones_do_not", statefulAndFresh},
	{"restart_begins_with_a_fresh_state", restartBeginsFresh},
	{"cells_have_results_and_exceptions", cellsHaveResults},
	{"input_asks_if_offered", inputAsks},
	{"inspects_a_live_interpreter", inspects},
	{"kept_cells_are_in_in_and_out", keepsCells},
	{"files_are_shared_with_the_host", filesAreShared},
	{"file_calls", fileCalls},
	{"file_calls_at_their_limits", fileCallsAtTheirLimits},
	{"overlays_hand_out_what_changed", overlaysHandOut},
	{"scripts_know_their_file_and_arguments", scriptsKnowTheirFile},
	{"once_ends_with_its_turn", onceEnds},
	{"entropy_is_real", entropyIsReal},
	{"asyncio_works", asyncioWorks},
	{"memory_cap_leaves_the_run_alive", memoryCap},
	{"ledger_has_the_processor_time", ledgerHasProcessorTime},
}

func contextsPreserveConfiguration(t *testing.T, s Subject) {
	l := newLab(t, s)
	a := l.start(func(spec *spool.Spec, c *python.SandboxConfig) {
		spec.Env = map[string]string{"WHO": "a", "ONLY": "here"}
		spec.Cwd = "/home/a"
		c.Files = []python.File{{Path: "/data/x.txt", Text: "of a"}}
	})
	b := l.start(func(spec *spool.Spec, c *python.SandboxConfig) {
		spec.Env = map[string]string{"WHO": "b"}
		c.Files = []python.File{{Path: "/data/x.txt", Base64: []byte{0, 255}, Mode: 0o600}}
	})
	for range 2 { // also in the second turn
		a.prints("import os; print(os.environ['WHO'], os.environ.get('ONLY'), os.getcwd(), open('/data/x.txt').read())", "a here /home/a of a\n")
		b.prints("import os; print(os.environ['WHO'], os.environ.get('ONLY'), os.getcwd(), open('/data/x.txt','rb').read(), oct(os.stat('/data/x.txt').st_mode))",
			"b None /workspace b'\\x00\\xff' 0o100600\n")
	}
	if a.run.ID() == b.run.ID() {
		t.Error("two contexts have one id")
	}
	for what, change := range map[string]func(*spool.Spec, *python.SandboxConfig){
		"a back end that does not exist": func(_ *spool.Spec, c *python.SandboxConfig) { c.Backend = "magic" },
		"a mount of nothing": func(_ *spool.Spec, c *python.SandboxConfig) {
			c.Mounts = []python.Mount{{Host: t.TempDir() + "/none", Guest: "/x"}}
		},
		"a relative mount": func(_ *spool.Spec, c *python.SandboxConfig) {
			c.Mounts = []python.Mount{{Host: t.TempDir(), Guest: "x"}}
		},
		"an inherited environment": func(s *spool.Spec, _ *python.SandboxConfig) {
			s.EnvPolicy = &spool.EnvPolicy{Inherit: "all"}
		},
	} {
		var start *spool.StartError
		if _, err := l.tryStart(change); !errors.As(err, &start) || start.Reason != engine.StartInvalid {
			t.Errorf("%s: %v, want it refused as invalid", what, err)
		}
	}
}

func runsCodeAndStreamsStdio(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	turn := b.exec(spool.Cell{Code: `
import sys
line = sys.stdin.readline()
print("out:" + line.strip())
print("err:" + line.strip(), file=sys.stderr)
print("rest:" + sys.stdin.read())
`})
	b.type_("still-open\n")
	b.type_("more")
	b.eof()
	e := b.wait(turn)
	if e.stdout != "out:still-open\nrest:more\n" || e.stderr != "err:still-open\n" || *e.done.ExitCode != 0 || e.done.Outcome != spool.TurnOK {
		t.Errorf("stdout %q, stderr %q, done %s", e.stdout, e.stderr, text(e.done))
	}
	if o := b.stop(); o.Kind != spool.Exited || o.Code != 0 {
		t.Errorf("the run ended %v", o)
	}
}

func waitBoundsOutputBuffers(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.OutputBytes = 32 })
	e := b.do("import sys\nfor i in range(80):\n    sys.stdout.write('o'); sys.stderr.write('e')\n")
	if e.stdout != strings.Repeat("o", 32) || e.stderr != strings.Repeat("e", 32) {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
	if *e.done.ExitCode != 0 || e.done.EndedBy != "" {
		t.Errorf("the turn ended %s", text(e.done))
	}
	i := slices.IndexFunc(e.events, func(e spool.Event) bool { return e.Kind == spool.KindTruncated })
	if i < 0 {
		t.Fatal("nothing says that output was dropped")
	}
	var tr spool.Truncation
	if err := json.Unmarshal(e.events[i].Data, &tr); err != nil {
		t.Fatal(err)
	}
	if tr.LimitBytes != 32 || tr.DroppedBytes[spool.Stdout] != 48 || tr.DroppedBytes[spool.Stderr] != 48 {
		t.Errorf("truncated says %s", e.events[i].Data)
	}
	b.prints("print('again')", "again\n")
}

func outputLimitCanStop(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.OutputBytes, c.Limits.OutputStop = 1000, true })
	e := b.do("while True: print('x' * 99)")
	if len(e.stdout) != 1000 || e.done.EndedBy != "output" || e.done.Outcome != spool.TurnKilled {
		t.Errorf("%d bytes, done %s", len(e.stdout), text(e.done))
	}
	b.alive()
}

func outputIsByteExact(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	b.prints(`
import sys, os
print()
print("Loading nothing")
print("Loaded nothing")
print("ümläut €")
sys.stdout.buffer.write(bytes(range(256)))
sys.stdout.flush()
os.write(1, b"\r\nraw\x00")
print("no end", end="")
`, "\nLoading nothing\nLoaded nothing\nümläut €\n"+allBytes()+"\r\nraw\x00no end")
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func emitsStdoutBeforeExit(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	turn := b.exec(spool.Cell{Code: "print('first', end='')\nimport sys; sys.stdin.read()\nprint('second')"})
	b.said(turn, turn.Seq(), "first") // waits for ever if it does not come
	b.eof()
	if e := b.wait(turn); e.stdout != "firstsecond\n" {
		t.Errorf("stdout %q", e.stdout)
	}
	// Nor does a loop that never ends keep it back.
	turn = b.exec(spool.Cell{Code: "print('busy', end='')\nwhile True: pass"})
	b.said(turn, turn.Seq(), "busy")
	if err := b.run.Control(b.ctx, spool.Control{Op: spool.ControlKill, Turn: turn.Seq()}); err != nil {
		t.Fatal(err)
	}
	b.wait(turn)
}

func reportsMetrics(t *testing.T, s Subject) {
	s.CacheDir, s.shared = t.TempDir(), nil
	l := newLab(t, s)
	on := func(_ *spool.Spec, c *python.SandboxConfig) { c.Metrics = true }
	for i, want := range []struct {
		executed bool
		reason   string
	}{{true, "executed"}, {false, "cached"}} {
		b := l.start(on)
		b.prints("print('hi')", "hi\n")
		m := b.metrics()
		if len(m) != 2 {
			t.Fatalf("run %d has the metrics %s", i, text(m))
		}
		pre, up := m[0], m[1]
		if pre.Phase != "prewarm" || pre.Executed == nil || *pre.Executed != want.executed || pre.Reason != want.reason ||
			pre.DurationMs == nil || (*pre.DurationMs > 0) != want.executed || pre.CacheDir == "" {
			t.Errorf("run %d: prewarm %s", i, text(pre))
		}
		if pre.CacheDir != "" && !strings.HasPrefix(pre.CacheDir, s.CacheDir) {
			t.Errorf("run %d: what was prepared is in %s, not below %s", i, pre.CacheDir, s.CacheDir)
		}
		if up.Phase != "startup" || up.StartupMs == nil || *up.StartupMs <= 0 || up.InterpreterMs == nil ||
			up.PackageCount == nil || *up.PackageCount != len(s.Config.Packages) || up.Source != "inline" {
			t.Errorf("run %d: startup %s", i, text(up))
		}
		if len(pre.Protections) == 0 {
			t.Errorf("run %d: nothing says what protects the machine: %s", i, text(pre))
		}
	}
	b := l.start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Metrics, c.File = true, "/app/main.py"
		c.Files = []python.File{{Path: "/app/main.py", Text: "print('from', __file__)"}}
	})
	b.prints("", "from /app/main.py\n")
	if m := b.metrics(); len(m) != 2 || m[1].Source != "file" {
		t.Errorf("of a file the metrics are %s", text(m))
	}
}

func metricsAreOff(t *testing.T, s Subject) {
	b := newLab(t, s).start(nil)
	b.prints("print('hi')", "hi\n")
	if m := b.metrics(); len(m) != 0 {
		t.Errorf("there are metrics: %s", text(m))
	}
}

func keepsStdinSessionsAlive(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	turn := b.exec(spool.Cell{Code: "import sys\nfor line in sys.stdin:\n    print('got', line.strip())\nprint('end')"})
	at := turn.Seq()
	for i := range 3 {
		b.type_(fmt.Sprintf("line %d\n", i))
		at = b.said(turn, at, fmt.Sprintf("got line %d\n", i))
	}
	b.eof()
	if e := b.wait(turn); !strings.HasSuffix(e.stdout, "end\n") || e.done.Outcome != spool.TurnOK {
		t.Errorf("stdout %q, done %s", e.stdout, text(e.done))
	}
}

func stdinBelongsToItsTurn(t *testing.T, s Subject) {
	l := newLab(t, s)
	b := l.start(func(spec *spool.Spec, _ *python.SandboxConfig) { spec.Stdin = true })
	b.type_("before ") // belongs to the first
	read := spool.Cell{Code: "import sys; print(sys.stdin.read())"}
	one := b.exec(read)
	b.type_("one")
	two := b.exec(read) // ends the input of the first
	b.type_("two")
	b.eof()
	if e := b.wait(one); e.stdout != "before one\n" {
		t.Errorf("the first turn read %q; stderr %q", e.stdout, e.stderr)
	}
	if e := b.wait(two); e.stdout != "two\n" {
		t.Errorf("the second turn read %q; stderr %q", e.stdout, e.stderr)
	}
	none := l.start(nil)
	if e := none.do("input()"); *e.done.ExitCode != 1 || !strings.Contains(e.stderr, "EOFError") {
		t.Errorf("without input: done %s, stderr %q", text(e.done), e.stderr)
	}
	if _, err := none.run.Send(none.ctx, spool.Input{Kind: spool.InputStdin, Bytes: []byte("x")}); !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("send to a run without input: %v", err)
	}
}
