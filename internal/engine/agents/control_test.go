package agents

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/engine/turns"
)

// logPrompt logs a prompt without giving it to the engine, as a host does first.
func (r *chat) logPrompt(text string) spool.Input {
	r.t.Helper()
	in := spool.Input{Kind: spool.InputPrompt, Data: mustJSON(r.t, spool.Prompt{Text: text})}
	said := mustJSON(r.t, spool.Said{Kind: in.Kind, Data: in.Data})
	var err error
	if in.Seq, err = r.log.Append(spool.Event{Kind: spool.KindInput, Data: said}); err != nil {
		r.t.Fatal(err)
	}
	return in
}

// TestInterruptRightAfterPrompt checks that an interrupt counts whenever it
// comes: before its prompt reached the engine, before its turn began, or while
// the process of the agent starts.
func TestInterruptRightAfterPrompt(t *testing.T) {
	answer := fakeCLI(t, printLines(codexThread, codexSays("m", "hi"), codexOver))

	t.Run("before_the_prompt_arrived", func(t *testing.T) {
		r := converse(t, newEngine(t), quick(answer))
		r.done(r.say("first"))
		in := r.logPrompt("go")
		r.control(spool.Control{Op: spool.ControlInterrupt, Turn: in.Seq})
		if err := r.s.Send(context.Background(), in); err != nil {
			t.Fatal(err)
		}
		if d := r.done(in.Seq); d.Outcome != spool.TurnInterrupted || d.EndedBy != "interrupt" {
			t.Errorf("done is %+v", d)
		}
		if d := r.done(r.say("next")); d.Answer != "hi" {
			t.Errorf("the next turn is %+v", d)
		}
	})
	t.Run("without_a_turn_right_after_the_prompt", func(t *testing.T) {
		for range 20 {
			r := converse(t, newEngine(t), agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, CancelGraceMs: 50,
				Program: fakeCLI(t, ignoring("HUP"))})
			turn := r.say("go")
			r.control(spool.Control{Op: spool.ControlInterrupt})
			if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.EndedBy != "interrupt" {
				t.Fatalf("done is %+v", d)
			}
		}
	})
}

// TestControlNamesATurn checks that a control with a turn acts on that turn
// alone, and that the run goes on.
func TestControlNamesATurn(t *testing.T) {
	program := `read prompt
echo '` + codexThread + `'
case $prompt in slow) trap '' INT TERM; sleep 1000 & wait; wait;; esac
` + printLines(codexSays("m", "hi"), codexOver)
	for _, tt := range []struct {
		op          spool.ControlOp
		runs, waits spool.TurnOutcome
	}{
		{spool.ControlInterrupt, spool.TurnInterrupted, spool.TurnInterrupted},
		{spool.ControlStop, spool.TurnCancelled, spool.TurnCancelled},
		{spool.ControlKill, spool.TurnKilled, spool.TurnKilled},
	} {
		t.Run(string(tt.op), func(t *testing.T) {
			r, err := tryConverse(t, newEngine(t), quick(fakeCLI(t, program)), spool.Limits{Grace: 50e6})
			if err != nil {
				t.Fatal(err)
			}
			runs, waits := r.say("slow"), r.say("never")
			r.until(spool.KindStarted)
			r.control(spool.Control{Op: tt.op, Turn: waits})
			if d := r.done(waits); d.Outcome != tt.waits || d.ErrorClass != turns.ClassNotRun || d.EndedBy != string(tt.op) {
				t.Errorf("the turn that waited: %+v", d)
			}
			r.control(spool.Control{Op: tt.op, Turn: runs})
			d := r.done(runs)
			if d.Outcome != tt.runs || d.EndedBy != string(tt.op) || d.ErrorClass != agent.ClassStopped {
				t.Errorf("the turn that ran: %+v", d)
			}
			if tt.op == spool.ControlKill && d.StoppedWith != StoppedKill {
				t.Errorf("killed with %q", d.StoppedWith)
			}
			r.control(spool.Control{Op: tt.op, Turn: runs}) // it is over
			if d := r.done(r.say("quick")); d.Outcome != spool.TurnOK || d.Answer != "hi" {
				t.Errorf("the next turn: %+v", d)
			}
			r.eof()
			if o := enginetest.Wait(t, r.s); o != (spool.Outcome{Kind: spool.Exited}) {
				t.Errorf("the run ended with %v", o)
			}
			wellFormed(t, r.log.All(t))
		})
	}
}

// TestPolicyDecidesBeforePeople checks that an ask that the policy decides is
// never open: its event carries the answer, and an answer of a person changes
// nothing.
func TestPolicyDecidesBeforePeople(t *testing.T) {
	r := claudeAsking(t, agent.Config{Policy: &agent.Policy{Default: agent.VerdictDeny}})
	turn := r.say("go")
	first := r.log.Until(t, "an ask", func(e spool.Event) bool { return e.Kind == spool.KindAsk })
	r.answer(first.Seq, agent.Allow)
	d := r.done(turn)
	if strings.Contains(d.Answer, "allow") || !strings.Contains(d.Answer, "deny") {
		t.Errorf("done is %+v", d)
	}
	for _, e := range r.log.All(t) {
		if e.Kind != spool.KindAsk {
			continue
		}
		a := enginetest.Data[spool.Ask](t, e)
		if e.OpensAsk() || a.Answer == nil || a.Answer.By != "policy: default" {
			t.Errorf("ask %d was open: %+v", e.Seq, a)
			continue
		}
		var d agent.Decision
		if err := json.Unmarshal(a.Answer.Data, &d); err != nil || d.Choice != agent.Deny {
			t.Errorf("ask %d was decided with %s: %v", e.Seq, a.Answer.Data, err)
		}
	}
	if n := r.closings(); len(n) != 0 {
		t.Errorf("asks were closed that were never open: %+v", n)
	}
}

// TestSessionToldAfterTheResult checks that the events of an agent that tells
// its session last wait for the lock all the same.
func TestSessionToldAfterTheResult(t *testing.T) {
	r := converse(t, newEngine(t), quick(fakeCLI(t, printLines(codexSays("m", "hi"), codexOver)+"sleep 0.2\n"+printLines(codexThread))))
	d := r.done(r.say("go"))
	if d.Outcome != spool.TurnOK || d.Answer != "hi" || d.Resume != "thread-1" {
		t.Errorf("done is %+v", d)
	}
	wellFormed(t, r.log.All(t))
}
