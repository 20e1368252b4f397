package main_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/modeltest"
)

// asking are the agents that ask before they run a command, and how to make
// them.
var asking = []way{
	{"codex", agent.Config{Agent: agent.Codex, Mode: agent.ModeDuplex, Permissions: "untrusted", Sandbox: "danger-full-access"}},
	{"claude", agent.Config{Agent: agent.Claude, Mode: agent.ModeDuplex}},
	{"opencode over acp", agent.Config{Agent: agent.ACP, Command: []string{"opencode", "acp"}}},
}

// askedAbout waits for the ask of a turn.
func (r *rig) askedAbout(t *spool.Turn) (spool.Seq, spool.Ask, agent.Approval) {
	r.t.Helper()
	s := &story{}
	for e, err := range t.Events(r.ctx) {
		if err != nil || e.Kind == spool.KindDone {
			r.t.Fatalf("nothing was asked: %v, %s\n%s", err, e.Data, s)
		}
		s.events = append(s.events, e)
		if e.Kind != spool.KindAsk {
			continue
		}
		var ask spool.Ask
		var what agent.Approval
		r.decode(&e, &ask)
		if err := json.Unmarshal(ask.Data, &what); err != nil {
			r.t.Fatal(err)
		}
		return e.Seq, ask, what
	}
	r.t.Fatal("nothing was asked")
	return 0, spool.Ask{}, agent.Approval{}
}

// TestAgentApproval checks that what is denied is not done, what is granted
// is, and that an ask takes one answer. An agent that is only known by its
// protocol is interrupted, too, and goes on.
func TestAgentApproval(t *testing.T) {
	t.Parallel()
	for _, w := range asking {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			r := newAskingRig(t, w, scriptFunc(func(q *modeltest.Request) modeltest.Step {
				switch outs := q.Outputs(); {
				case strings.Contains(q.Prompt(), "Sleep"):
					return modeltest.Shell("echo $$ >pid; sleep 300")
				case strings.Contains(q.Prompt(), "done") || len(outs) > 0 && q.Input[len(q.Input)-1].Output != nil:
					return modeltest.Say("So be it.")
				}
				return modeltest.Shell("echo made >>made.txt")
			}))
			run := r.start(nil)
			s := r.answered(run, agent.Deny)
			if _, err := os.Stat(filepath.Join(r.dir, "made.txt")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the command ran: %v\n%s", err, s)
			}
			if len(s.begun) > len(s.actions) {
				t.Errorf("%d actions began and %d ended\n%s", len(s.begun), len(s.actions), s)
			}
			s = r.answered(run, agent.Allow)
			r.wantDone(s, spool.TurnOK)
			if got, err := os.ReadFile(filepath.Join(r.dir, "made.txt")); err != nil || string(got) != "made\n" || s.done.Answer != "So be it." {
				t.Errorf("made %q, %v; answer %q\n%s", got, err, s.done.Answer, s)
			}
			if r.config.Agent == agent.ACP {
				r.interruptAllowed(run)
			}
			r.end(run)
		})
	}
}

// scriptFunc is a script that looks at the request alone.
type scriptFunc func(*modeltest.Request) modeltest.Step

func (f scriptFunc) Step(r *modeltest.Request) (modeltest.Step, error) {
	if len(r.Tools) == 0 {
		return modeltest.Say("A title"), nil
	}
	return f(r), nil
}

func (scriptFunc) Left() error { return nil }

// answered has a command be asked for, and answers.
func (r *rig) answered(run *spool.Run, choice string) *story {
	r.t.Helper()
	turn, err := run.Prompt(r.ctx, "", spool.Prompt{Text: "Make the file."})
	if err != nil {
		r.t.Fatal(err)
	}
	seq, ask, what := r.askedAbout(turn)
	if ask.Kind != agent.AskApproval || what.Kind != agent.ActionCommand || !strings.Contains(what.Command, "echo made") {
		r.t.Errorf("asked %+v about %+v", ask, what)
	}
	data, err := json.Marshal(agent.Decision{Choice: choice, Message: "Not here."})
	if err != nil {
		r.t.Fatal(err)
	}
	answer := spool.Answer{Ask: seq, Data: data, By: "a person"}
	if err := run.Answer(r.ctx, answer, false); err != nil {
		r.t.Fatal(err)
	}
	if err := run.Answer(r.ctx, answer, false); !errors.Is(err, spool.ErrNotAsked) {
		r.t.Errorf("a second answer: %v", err)
	}
	return r.tell(turn)
}

// interruptAllowed interrupts a command that was allowed.
func (r *rig) interruptAllowed(run *spool.Run) {
	r.t.Helper()
	pid := fifotest.New(r.t, r.dir, "pid")
	turn, err := run.Prompt(r.ctx, "", spool.Prompt{Text: "Sleep."})
	if err != nil {
		r.t.Fatal(err)
	}
	seq, _, _ := r.askedAbout(turn)
	if err := run.Reply(r.ctx, seq, agent.Allow); err != nil {
		r.t.Fatal(err)
	}
	shell, err := pid.Line(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := turn.Interrupt(r.ctx, 0); err != nil {
		r.t.Fatal(err)
	}
	s := r.tell(turn)
	r.wantDone(s, spool.TurnInterrupted)
	r.waitFor(func() bool { return !alive(r.t, shell) })
	s = r.say(run, "Are you done?")
	r.wantDone(s, spool.TurnOK)
	if s.done.Answer != "So be it." {
		r.t.Errorf("answer %q\n%s", s.done.Answer, s)
	}
}

// TestAgentPolicy checks that rules answer without anybody, and that the log
// says so.
func TestAgentPolicy(t *testing.T) {
	t.Parallel()
	for _, w := range asking[:2] {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			r := newAskingRig(t, w, modeltest.ByTurn(
				modeltest.Shell("touch allowed.txt"), modeltest.Shell("mkdir denied"), modeltest.Say("So be it.")))
			run := r.start(func(c *agent.Config) {
				c.Policy = &agent.Policy{Default: agent.VerdictDeny, Rules: []agent.Rule{{Verdict: agent.VerdictAllow, Commands: []string{"touch"}}}}
			})
			s := r.say(run, "Make both.")
			r.wantDone(s, spool.TurnOK)
			if _, err := os.Stat(filepath.Join(r.dir, "allowed.txt")); err != nil {
				t.Errorf("%v\n%s", err, s)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "denied")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the other was made: %v\n%s", err, s)
			}
			var by []string
			for _, e := range s.events {
				var a spool.Ask
				if e.Kind == spool.KindAsk && json.Unmarshal(e.Data, &a) == nil && a.Answer != nil {
					by = append(by, a.Answer.By)
				}
			}
			if len(by) != 2 || by[0] != "policy: rule 1" || by[1] != "policy: default" {
				t.Errorf("answered by %q\n%s", by, s)
			}
			r.end(run)
		})
	}
}

// newAskingRig is a rig whose agent asks before it runs a command.
func newAskingRig(t *testing.T, w way, script modeltest.Script) *rig {
	t.Helper()
	r := newRig(t, w, script)
	r.env["OPENCODE_PERMISSION"] = `{"*":"ask"}`
	return r
}
