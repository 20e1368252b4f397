package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/engine/turns"
)

// ignoring is a codex that starts a command and ignores signals.
func ignoring(signals string) string {
	return "trap '' " + signals + "\n" + printLines(codexThread, codexTurn,
		`{"type":"item.started","item":{"id":"c","type":"command_execution","command":"make","status":"in_progress"}}`) +
		"exec sleep 1000\n" // a shell that waits has rules of its own for SIGINT
}

// quick is a config whose patience is short.
func quick(program string) agent.Config {
	return agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: program, CancelGraceMs: 50}
}

func TestStopLadder(t *testing.T) {
	for _, tt := range []struct {
		name, ignored, want string
		patience            int64         // for the good signal
		grace               time.Duration // for SIGTERM
	}{
		{"good_signal_is_enough", "HUP", "SIGINT", 0, 0},
		{"term_after_the_good_signal", "INT", "SIGTERM", 50, 0},
		{"kill_after_grace", "INT TERM", "kill", 50, 100 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := quick(fakeCLI(t, ignoring(tt.ignored)))
			c.CancelGraceMs = tt.patience
			r, err := tryConverse(t, newEngine(t), c, spool.Limits{Grace: tt.grace})
			if err != nil {
				t.Fatal(err)
			}
			turn := r.say("go")
			r.log.Until(t, "a command", func(e spool.Event) bool { return strings.Contains(string(e.Data), `"make"`) })
			r.control(spool.Control{Op: spool.ControlStop})
			d := r.done(turn)
			if d.Outcome != spool.TurnCancelled || d.StoppedWith != tt.want || d.EndedBy != "stop" || d.ErrorClass != agent.ClassStopped {
				t.Errorf("done is %+v", d)
			}
			enginetest.Wait(t, r.s)
			wellFormed(t, r.log.All(t))
			a := events[agent.Action](t, r.log, agent.KindAction)
			if last := a[len(a)-1]; last.Phase != agent.ActionCompleted || !last.Synthetic || *last.OK || last.Message != "cancelled" {
				t.Errorf("the command's end is %+v", last)
			}
		})
	}

	t.Run("kill_is_at_once", func(t *testing.T) {
		r := converse(t, newEngine(t), agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t, ignoring("INT TERM"))})
		turn := r.say("go")
		queued := r.say("and then")
		r.until(agent.KindAction)
		r.control(spool.Control{Op: spool.ControlKill})
		if d := r.done(turn); d.Outcome != spool.TurnKilled || d.StoppedWith != "kill" || d.Signal != "SIGKILL" {
			t.Errorf("done is %+v", d)
		}
		if d := r.done(queued); d.Outcome != spool.TurnKilled {
			t.Errorf("the turn that waited: %+v", d)
		}
		if o := enginetest.Wait(t, r.s); o.Signal != "SIGKILL" {
			t.Errorf("outcome is %v", o)
		}
	})

	t.Run("second_interrupt_is_stronger", func(t *testing.T) {
		r := converse(t, newEngine(t), agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t, ignoring("INT"))})
		turn := r.say("go")
		r.until(agent.KindAction)
		r.control(spool.Control{Op: spool.ControlInterrupt})
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn})
		if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != "SIGTERM" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("success_is_success_even_when_stopped", func(t *testing.T) {
		r := converse(t, newEngine(t), agent.Config{Agent: agent.Claude, Mode: agent.ModeExec, Program: fakeCLI(t,
			"stop() { echo '"+claudeOver+"'; exit 0; }\ntrap stop INT\n"+printLines(claudeInit)+"while :; do sleep 1 & wait $!; done\n")})
		turn := r.say("go")
		r.until(spool.KindStarted)
		r.control(spool.Control{Op: spool.ControlInterrupt})
		if d := r.done(turn); d.Outcome != spool.TurnOK || d.Answer != "done" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("run_goes_on_after_an_interrupt", func(t *testing.T) {
		r := converse(t, newEngine(t), quick(fakeCLI(t, `case "$*" in *resume\ thread-1*) `+printLines(codexThread, codexSays("m", "again"), codexOver)+"exit 0;; esac\n"+ignoring("HUP"))))
		one := r.say("go")
		r.until(agent.KindAction)
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: one})
		if d := r.done(one); d.Outcome != spool.TurnInterrupted || d.Resume != "thread-1" {
			t.Errorf("done is %+v", d)
		}
		if d := r.done(r.say("go on")); d.Outcome != spool.TurnOK || d.Answer != "again" {
			t.Errorf("done is %+v", d)
		}
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: one}) // it is over
		r.eof()
		if o := enginetest.Wait(t, r.s); o != (spool.Outcome{Kind: spool.Exited}) {
			t.Errorf("outcome is %v", o)
		}
		wellFormed(t, r.log.All(t))
	})
}

// TestEndingProcessGetsNoPrompt has an agent answer after the signal that ends it: the
// next prompt is for a new process.
func TestEndingProcessGetsNoPrompt(t *testing.T) {
	const late = `trap 'kill $!; echo "$aborted"; sleep 0.3; exit 0' INT
aborted='{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","session_id":"s-1"}'
while read -r line; do case $line in
*'"initialize"'*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"spool-1","response":{}}}';;
*slow*)
	echo '` + claudeInit + `'
	echo '{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":"begun"}]}}'
	sleep 1000 & wait;;
*'"type":"user"'*)
	echo '` + claudeInit + `'
	echo '` + claudeOver + `';;
esac; done
`
	c := agent.Config{Agent: agent.Claude, Mode: agent.ModeDuplex, CancelGraceMs: time.Minute.Milliseconds(), Program: fakeCLI(t, late)}
	r := converse(t, newEngine(t), c)
	turn := r.say("slow")
	r.log.Until(t, "an answer", func(e spool.Event) bool { return strings.Contains(string(e.Data), `"begun"`) })
	r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn})
	r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn}) // the second is a signal
	if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != "SIGINT" || d.ExitCode == nil {
		t.Errorf("done is %+v", d)
	}
	if d := r.ask("go on"); d.Outcome != spool.TurnOK || d.Answer != "done" {
		t.Errorf("done of the next turn is %+v", d)
	}
}

func TestLimits(t *testing.T) {
	t.Run("turn_timeout", func(t *testing.T) {
		c := quick(fakeCLI(t, ignoring("HUP")))
		c.TurnTimeoutMs, c.CancelGraceMs = 100, 0
		r := converse(t, newEngine(t), c)
		if d := r.done(r.say("go")); d.Outcome != spool.TurnTimeout || d.EndedBy != "timeout" || d.StoppedWith != "SIGINT" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("wall", func(t *testing.T) {
		r, err := tryConverse(t, newEngine(t), quick(fakeCLI(t, ignoring("HUP"))), spool.Limits{Wall: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.done(r.say("go")); d.Outcome != spool.TurnTimeout || d.EndedBy != "wall" {
			t.Errorf("done is %+v", d)
		}
		if o := enginetest.Wait(t, r.s); o.Kind != spool.Exited || o.Reason != "the run took longer than 3s" {
			t.Errorf("outcome is %v", o)
		}
	})
	t.Run("log", func(t *testing.T) {
		r, err := tryConverse(t, newEngine(t), quick(fakeCLI(t, printLines(codexThread)+
			`while :; do echo '{"type":"error","message":"and again"}'; done`)), spool.Limits{OutputBytes: 100_000})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.done(r.say("go")); d.Outcome != agent.TurnBudget || d.EndedBy != "output" {
			t.Errorf("done is %+v", d)
		}
		enginetest.Wait(t, r.s)
		if !slices.Contains(r.log.Notices(t), talk.NoticeOutputLimit) {
			t.Error("the log does not say why")
		}
	})
	t.Run("stalled_while_thinking", func(t *testing.T) {
		c := quick(fakeCLI(t, printLines(codexThread, codexTurn)+"exec sleep 1000"))
		c.Stall = agent.Stall{IdleMs: 100}
		r := converse(t, newEngine(t), c)
		if d := r.done(r.say("go")); d.Outcome != agent.TurnStalled || !strings.Contains(d.Error, "thinking") {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("stalled_in_a_tool", func(t *testing.T) {
		c := quick(fakeCLI(t, ignoring("HUP")))
		c.Stall = agent.Stall{IdleMs: 20_000, ToolMs: 200}
		r := converse(t, newEngine(t), c)
		if d := r.done(r.say("go")); d.Outcome != agent.TurnStalled || !strings.Contains(d.Error, "running a tool") {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("output_is_life", func(t *testing.T) {
		t.Parallel() // it waits most of its time
		// It says something six times, and a fifth of the limit apart. A machine that is
		// too busy for that gets a longer limit.
		for limit := 2 * time.Second; ; limit *= 4 {
			c := quick(fakeCLI(t, printLines(codexThread)+fmt.Sprintf(`for i in 1 2 3 4 5 6; do sleep %.1f; echo '{"type":"error","message":"still here"}'; done
`, limit.Seconds()/5)+printLines(codexOver)))
			c.Stall = agent.Stall{IdleMs: limit.Milliseconds()}
			r := converse(t, newEngine(t), c)
			d := r.done(r.say("go"))
			if d.Outcome == spool.TurnOK {
				return
			}
			if limit > 30*time.Second {
				t.Fatalf("done is %+v", d)
			}
			t.Logf("with a limit of %v done is %+v", limit, d)
		}
	})
	step := func(n string) string {
		return `{"type":"step_start","sessionID":"ses_1","part":{"type":"step-start"}}` + "\n" +
			`{"type":"text","sessionID":"ses_1","part":{"id":"t","messageID":"m","text":"x"}}` + "\n" +
			`{"type":"step_finish","sessionID":"ses_1","part":{"reason":"tool-calls","tokens":{"input":` + n + `,"output":0},"cost":0.5}}`
	}
	forever := "while :; do " + "cat <<'END'\n" + step("100") + "\nEND\nsleep 0.01; done\n"
	for _, tt := range []struct {
		name   string
		budget agent.Budget
		want   spool.TurnOutcome
	}{
		{"tokens", agent.Budget{Tokens: 250}, agent.TurnBudget},
		{"cost", agent.Budget{CostUSD: 1.2}, agent.TurnBudget},
		{"steps", agent.Budget{Steps: 3}, agent.TurnMaxTurns},
	} {
		t.Run("budget_of_"+tt.name, func(t *testing.T) {
			r := converse(t, newEngine(t), agent.Config{Agent: agent.OpenCode, Mode: agent.ModeExec, Budget: tt.budget, Program: fakeCLI(t, forever)})
			d := r.done(r.say("go"))
			if d.Outcome != tt.want || d.EndedBy != "budget" || d.StoppedWith != "SIGTERM" {
				t.Errorf("done is %+v", d)
			}
			if !slices.Contains(r.log.Notices(t), talk.NoticeBudget) {
				t.Errorf("notices are %v", r.log.Notices(t))
			}
			if tt.want != agent.TurnBudget {
				return
			}
			// Nothing is left for another turn.
			if d := r.done(r.say("more")); d.Outcome != agent.TurnBudget || d.ExitCode != nil {
				t.Errorf("the next turn: %+v", d)
			}
		})
	}
}

func TestFollowUps(t *testing.T) {
	// It answers each prompt with it, and takes its time if told to.
	program := `read prompt
echo '{"type":"thread.started","thread_id":"thread-1"}'
case $prompt in slow) sleep 1000;; esac
echo '{"type":"item.completed","item":{"id":"m","type":"agent_message","text":"'$prompt'"}}'
echo '` + codexOver + `'`

	t.Run("queue", func(t *testing.T) {
		r := converse(t, newEngine(t), quick(fakeCLI(t, program)))
		var turns []spool.Seq
		for _, p := range []string{"a", "b", "c"} {
			turns = append(turns, r.say(p))
		}
		r.eof()
		for i, want := range []string{"a", "b", "c"} {
			if d := r.done(turns[i]); d.Answer != want {
				t.Errorf("turn %d: %+v", i, d)
			}
		}
		enginetest.Wait(t, r.s)
		wellFormed(t, r.log.All(t))
		if err := r.s.Send(context.Background(), spool.Input{Kind: spool.InputPrompt, Data: []byte(`{"text":"x"}`)}); !errors.Is(err, spool.ErrInputClosed) {
			t.Errorf("prompt after the end: %v", err)
		}
	})
	t.Run("queued_can_be_cancelled", func(t *testing.T) {
		r := converse(t, newEngine(t), quick(fakeCLI(t, program)))
		slow, waits := r.say("slow"), r.say("b")
		r.until(spool.KindStarted)
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: waits})
		if d := r.done(waits); d.Outcome != spool.TurnInterrupted || d.ErrorClass != turns.ClassNotRun {
			t.Errorf("done is %+v", d)
		}
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: slow})
		if d := r.done(slow); d.Outcome != spool.TurnInterrupted {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("interrupt", func(t *testing.T) {
		c := quick(fakeCLI(t, program))
		c.FollowUp = agent.FollowInterrupt
		r := converse(t, newEngine(t), c)
		slow := r.say("slow")
		r.until(spool.KindStarted)
		next := r.say("b")
		if d := r.done(slow); d.Outcome != spool.TurnInterrupted || d.EndedBy != "follow_up" {
			t.Errorf("done is %+v", d)
		}
		if d := r.done(next); d.Answer != "b" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("reject", func(t *testing.T) {
		c := quick(fakeCLI(t, program))
		c.FollowUp = agent.FollowReject
		r := converse(t, newEngine(t), c)
		r.say("slow")
		if err := r.s.Takes(spool.Input{Kind: spool.InputPrompt, Data: []byte(`{"text":"x"}`)}); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("takes another prompt: %v", err)
		}
	})
	t.Run("steer_without_a_way_to_waits", func(t *testing.T) {
		c := quick(fakeCLI(t, program))
		c.FollowUp = agent.FollowSteer
		r := converse(t, newEngine(t), c)
		slow := r.say("slow")
		r.until(spool.KindStarted)
		next := r.say("b")
		r.until(spool.KindNotice)
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: slow})
		if d := r.done(next); d.Answer != "b" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("too_many", func(t *testing.T) {
		r := converse(t, newEngine(t), quick(fakeCLI(t, program)))
		r.say("slow")
		r.until(spool.KindStarted) // until then it waits, too
		for range MaxQueued {
			r.say("b")
		}
		if err := r.s.Takes(spool.Input{Kind: spool.InputPrompt, Data: []byte(`{"text":"x"}`)}); !errors.Is(err, spool.ErrBusy) {
			t.Errorf("takes another prompt: %v", err)
		}
	})
}

func TestInputsThatMakeNoSense(t *testing.T) {
	r := converse(t, newEngine(t), quick(fakeCLI(t, "exit 0")))
	for _, in := range []spool.Input{
		{Kind: spool.InputPrompt, Data: []byte(`{"text":""}`)},
		{Kind: spool.InputPrompt, Data: []byte(`{`)},
		{Kind: spool.InputPrompt, Data: []byte(`{"text":"` + strings.Repeat("x", agent.MaxPrompt+1) + `"}`)},
	} {
		if err := r.s.Takes(in); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("takes %.20s: %v", in.Data, err)
		}
	}
	if err := r.s.Takes(spool.Input{Kind: spool.InputCell}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("takes a cell: %v", err)
	}
	if err := r.s.Control(context.Background(), spool.Control{Op: spool.ControlResize}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("resize: %v", err)
	}
	for _, c := range []agent.Config{{}, {Agent: "nobody"}, {Agent: agent.Codex, Mode: "loud"}, {Agent: agent.OpenCode, Mode: agent.ModeDuplex},
		{Agent: agent.Codex, FollowUp: "dance"}, {Agent: agent.Codex, Fork: true}, {Agent: agent.Codex, Policy: &agent.Policy{Rules: []agent.Rule{{Verdict: "perhaps"}}}}} {
		_, err := tryConverse(t, newEngine(t), c, spool.Limits{})
		var start *spool.StartError
		if !errors.As(err, &start) || start.Reason != engine.StartInvalid {
			t.Errorf("start with %+v: %v", c, err)
		}
	}
	for _, config := range []string{`{"agent":"codex","policy":{"rules":[]}}`, `{"agent":"codex","modell":"x"}`} {
		_, err := newEngine(t).Start(context.Background(), spool.Spec{Engine: agent.Engine, Config: []byte(config)}, enginetest.NewLog())
		var start *spool.StartError
		if !errors.As(err, &start) || start.Reason != engine.StartInvalid {
			t.Errorf("start with the unknown key of %s: %v", config, err)
		}
	}
	r.eof()
	if o := enginetest.Wait(t, r.s); o.Kind != spool.Failed {
		t.Errorf("a run without a prompt ends with %v", o)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("SPOOL_TEST_LEAK", "1")
	show := `echo "$NO_COLOR|$CI|$DISABLE_AUTOUPDATER|$ANTHROPIC_API_KEY|$SPOOL_TEST_LEAK" >&2; exit 1`
	run := func(c agent.Config, env map[string]string) string {
		config := mustJSON(t, c)
		env["PATH"] = os.Getenv("PATH")
		log := enginetest.NewLog()
		s, err := newEngine(t).Start(context.Background(), spool.Spec{Config: config, Env: env}, log)
		if err != nil {
			t.Fatal(err)
		}
		r := &chat{t, s, log}
		return r.ask("x").Stderr
	}
	program := fakeCLI(t, show)
	if got := run(agent.Config{Agent: agent.Pi, Mode: agent.ModeExec, Program: program}, map[string]string{"CI": "mine"}); got != "1|mine|||" {
		t.Errorf("pi sees %q", got)
	}
	key := map[string]string{"ANTHROPIC_API_KEY": "k"}
	if got := run(agent.Config{Agent: agent.Claude, Mode: agent.ModeExec, Program: program}, key); got != "||1|k|" {
		t.Errorf("claude sees %q", got)
	}
	if got := run(agent.Config{Agent: agent.Claude, Mode: agent.ModeExec, Program: program, DropEnv: []string{"ANTHROPIC_API_KEY"}}, key); got != "||1||" {
		t.Errorf("claude without a key sees %q", got)
	}
}

// full is a log that takes a few events and then no more.
type full struct {
	*enginetest.Log
	left int
}

var errFull = errors.New("no space left")

func (f *full) Append(e spool.Event) (spool.Seq, error) {
	if f.left--; f.left < 0 {
		return 0, errFull
	}
	return f.Log.Append(e)
}

func (f *full) PutBlob(string, io.Reader) (spool.Blob, error) { return spool.Blob{}, errFull }

func TestLogThatTakesNoMoreEndsTheRun(t *testing.T) {
	dir := t.TempDir()
	log := &full{enginetest.NewLog(), 2}
	s, err := newEngine(t).Start(context.Background(), spool.Spec{
		Config: mustJSON(t, quick(fakeCLI(t, "echo $$ > "+dir+"/pid\n"+ignoring("INT TERM")))),
		Env:    map[string]string{"PATH": os.Getenv("PATH")}}, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(context.Background(), spool.Input{Kind: spool.InputPrompt, Data: []byte(`{"text":"x"}`), Seq: 1}); err != nil {
		t.Fatal(err)
	}
	enginetest.Wait(t, s)
	if pid := pidIn(t, dir+"/pid"); alive(pid) {
		t.Errorf("process %d is left", pid)
	}
}

func TestRawKeepsTheAgentsLine(t *testing.T) {
	c := quick(fakeCLI(t, printLines(codexThread, codexSays("m", "hi"), codexOver)))
	c.Raw = true
	r := converse(t, newEngine(t), c)
	r.ask("x")
	for _, e := range r.log.All(t) {
		switch e.Kind {
		case spool.KindStarted:
			if string(e.Bytes) != codexThread {
				t.Errorf("started keeps %q", e.Bytes)
			}
		case agent.KindMessage:
			if string(e.Bytes) != codexSays("m", "hi") {
				t.Errorf("message keeps %q", e.Bytes)
			}
		}
	}
}

// A run whose events wait for another run can be stopped: its process ends,
// and what it said is not lost.
func TestRunThatIsHeldBackCanBeStopped(t *testing.T) {
	for op, want := range map[spool.ControlOp]spool.TurnOutcome{
		spool.ControlStop: spool.TurnCancelled, spool.ControlInterrupt: spool.TurnInterrupted, spool.ControlKill: spool.TurnKilled,
	} {
		t.Run(string(op), func(t *testing.T) {
			d := newPacedDir(t, 1)
			first := d.start(t, "", "same", "")
			first.until(spool.KindStarted)
			second := d.start(t, "", "same", "")
			second.waitsForSession()
			second.control(spool.Control{Op: op})
			if got := second.done(second.turn); got.Outcome != want || got.Resume != "same" {
				t.Errorf("done is %+v", got)
			}
			if !second.started() {
				t.Error("its start is lost")
			}
			enginetest.Wait(t, second.s)
			wellFormed(t, second.log.All(t))
			first.finish()
		})
	}
}

func TestHeldEventsAreBounded(t *testing.T) {
	log := enginetest.NewLog()
	p := &prompt{Turn: talk.NewTurn(&talk.Run{Out: log}, 1)}
	p.Hold()
	text := strings.Repeat("x", talk.MaxText)
	n := 0
	for ; !p.full(); n++ {
		if n > 2*MaxHeld/talk.MaxText {
			t.Fatal("there is no bound")
		}
		p.Message(agent.Message{Text: text})
	}
	if len(log.All(t)) != 0 {
		t.Error("what is held was written")
	}
	p.Release()
	if p.full() || len(log.All(t)) != n {
		t.Errorf("%d of %d events were written", len(log.All(t)), n)
	}
}

func TestUnwrittenInputIsBounded(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f := newFeeder(w)
	chunk := make([]byte, 1<<20)
	for range 2 * maxUnwritten / len(chunk) {
		f.Write(chunk)
	}
	f.mu.Lock()
	waits := f.bytes
	f.mu.Unlock()
	if waits > maxUnwritten {
		t.Errorf("%d bytes wait", waits)
	}
	f.stop() // although nobody reads
}

func TestProgramThatVanished(t *testing.T) {
	program := fakeCLI(t, "exit 0")
	r := converse(t, newEngine(t), quick(program))
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	d := r.ask("go")
	if d.Outcome != spool.TurnError || d.ErrorClass != agent.ClassStart || !strings.Contains(d.Error, program) {
		t.Errorf("done is %+v", d)
	}
	if o := r.s.Wait(); o.Kind != spool.Failed || !strings.Contains(o.Reason, program) {
		t.Errorf("outcome is %v", o)
	}
	wellFormed(t, r.log.All(t))
}
