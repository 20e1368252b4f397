package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/modeltest"
)

// command returns the one command of a turn.
func (r *rig) command(s *story) agent.Action {
	r.t.Helper()
	var found []agent.Action
	for _, a := range s.actions {
		if a.Kind == agent.ActionCommand {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%d commands, want 1:\n%s", len(found), s)
	}
	return found[0]
}

// TestAgentRunsCommand checks a turn that ends well, with a command and what
// it cost; and that the session can be resumed by another run, in which a
// command that fails is an action that did, and not the end.
func TestAgentRunsCommand(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.Together(modeltest.Say("I will."), modeltest.Shell("echo made >made.txt && echo printed")),
			modeltest.Say("All done."),
			modeltest.Shell("echo oh no >&2; exit 3"),
			modeltest.Say("It failed, I am afraid."),
		))
		run := r.start(nil)
		s := r.say(run, "Make the file.")
		r.wantDone(s, spool.TurnOK)
		if s.done.Answer != "All done." {
			t.Errorf("answer %q\n%s", s.done.Answer, s)
		}
		if s.start == nil || s.start.Resume == "" || s.start.Agent != r.agent || s.done.Resume != s.start.Resume {
			t.Errorf("started %+v, resume %q", s.start, s.done.Resume)
		}
		c := r.command(s)
		if c.OK == nil || !*c.OK || !strings.Contains(c.Title, "echo made") || !strings.Contains(c.Output, "printed") {
			t.Errorf("command %+v\n%s", c, s)
		}
		if got, err := os.ReadFile(filepath.Join(r.dir, "made.txt")); err != nil || string(got) != "made\n" {
			t.Errorf("the command made %q, %v", got, err)
		}
		r.wantTokens(s, 2)
		if o := r.end(run); o.Kind != spool.Exited || o.Code != 0 {
			t.Errorf("the run %v", o)
		}

		again := r.start(func(c *agent.Config) { c.Resume = s.done.Resume })
		s2 := r.say(again, "Try the other one.")
		r.wantDone(s2, spool.TurnOK)
		if s2.done.Answer != "It failed, I am afraid." || s2.done.Resume != s.done.Resume {
			t.Errorf("resumed: answer %q, session %q\n%s", s2.done.Answer, s2.done.Resume, s2)
		}
		c = r.command(s2)
		if c.OK == nil || *c.OK || !strings.Contains(c.Output+c.Message, "oh no") {
			t.Errorf("command %+v\n%s", c, s2)
		}
		r.wantTokens(s2, 2)
		r.end(again)
		if err := r.model.Err(); err != nil {
			t.Error(err)
		}
	})
}

// wantTokens checks what a turn of so many answers used: agents that only tell
// totals must not count what was before.
func (r *rig) wantTokens(s *story, answers int64) {
	r.t.Helper()
	var u agent.Usage
	if err := json.Unmarshal(s.done.Usage, &u); err != nil {
		r.t.Fatalf("usage %s: %v\n%s", s.done.Usage, err, s)
	}
	if u.Turn == nil || u.Turn.Input != answers*modeltest.InputTokens || u.Turn.Output != answers*modeltest.OutputTokens {
		r.t.Errorf("the turn used %s, want %d answers\n%s", s.done.Usage, answers, s)
	}
}

// TestAgentInterrupted interrupts a turn while a command runs: nothing of it is
// left, and the session goes on.
func TestAgentInterrupted(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.Shell("echo $$ >pid; sleep 300; echo survived >survived"),
			modeltest.Say("Here again."),
		))
		pid := fifotest.New(t, r.dir, "pid")
		run := r.start(nil)
		turn, err := run.Prompt(r.ctx, "", spool.Prompt{Text: "Sleep."})
		if err != nil {
			t.Fatal(err)
		}
		shell, err := pid.Line(r.ctx)
		if err != nil {
			t.Fatalf("the command did not start: %v", err)
		}
		if !alive(t, shell) {
			t.Fatalf("process %s does not run", shell)
		}
		if err := turn.Interrupt(r.ctx, 0); err != nil {
			t.Fatal(err)
		}
		s := r.tell(turn)
		r.wantDone(s, spool.TurnInterrupted)
		if s.done.StoppedWith == "" {
			t.Errorf("nothing says what was needed\n%s", s)
		}
		// Of a duplex agent it ends in the agent's own time; of the others it was
		// killed, which takes a moment on a busy machine.
		r.waitFor(func() bool { return !alive(t, shell) })
		if len(s.begun) > len(s.actions) {
			t.Errorf("%d actions began and %d ended\n%s", len(s.begun), len(s.actions), s)
		}
		s2 := r.say(run, "Are you there?")
		r.wantDone(s2, spool.TurnOK)
		if s2.done.Answer != "Here again." {
			t.Errorf("answer %q\n%s", s2.done.Answer, s2)
		}
		r.end(run)
	})
}

// TestAgentTwoPromptsToOneSession has two runs work in one session: one after
// the other, never at once.
func TestAgentTwoPromptsToOneSession(t *testing.T) {
	eachOf(t, quickWays, func(t *testing.T, w way) {
		gate := make(chan struct{})
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.Shell("true"),
			modeltest.Say("One.").After(gate),
			modeltest.Say("Two."),
		))
		a := r.start(nil)
		turnA, err := a.Prompt(r.ctx, "", spool.Prompt{Text: "A"})
		if err != nil {
			t.Fatal(err)
		}
		session := r.session(turnA)
		b := r.start(func(c *agent.Config) { c.Resume = session })
		turnB, err := b.Prompt(r.ctx, "", spool.Prompt{Text: "B"})
		if err != nil {
			t.Fatal(err)
		}
		r.waitNotice(turnB, talk.NoticeWaiting)
		if info, err := b.Info(r.ctx); err != nil || info.Pid != 0 {
			t.Errorf("the second agent runs already: pid %d, %v", info.Pid, err)
		}
		close(gate)
		sA, sB := r.tell(turnA), r.tell(turnB)
		if sA.done.Answer != "One." || sB.done.Answer != "Two." {
			t.Errorf("answers %q and %q\n%s\n%s", sA.done.Answer, sB.done.Answer, sA, sB)
		}
		r.end(a)
		r.end(b)
	})
}

// session waits until the session of a turn is known.
func (r *rig) session(t *spool.Turn) string {
	r.t.Helper()
	for e, err := range t.Events(r.ctx) {
		if err != nil || e.Kind == spool.KindDone {
			r.t.Fatalf("no session: %v, %s", err, e.Data)
		}
		if e.Kind == spool.KindStarted {
			var s agent.Started
			r.decode(&e, &s)
			return s.Resume
		}
	}
	r.t.Fatal("no session")
	return ""
}

// waitNotice waits until a turn has a notice of some code.
func (r *rig) waitNotice(t *spool.Turn, code string) {
	r.t.Helper()
	for e, err := range t.Events(r.ctx) {
		var n spool.Notice
		if err != nil || e.Kind == spool.KindDone {
			r.t.Fatalf("no notice %s: %v, %s", code, err, e.Data)
		}
		if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == code {
			return
		}
	}
}
