package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/engine"
	"github.com/spool-run/spool/engine/agent"
	"github.com/spool-run/spool/host"
	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/modeltest"
)

// turnTime bounds one turn of a real agent: opencode takes ten seconds on a
// busy machine to start.
const turnTime = 90 * time.Second

// rig is an agent with a scripted model, in a home and a directory of its own.
type rig struct {
	t      *testing.T
	agent  string
	config agent.Config
	model  *modeltest.Model
	host   *host.Host
	env    map[string]string
	dir    string
	ctx    context.Context
}

// a way is an agent and how to talk to it.
type way struct {
	name   string
	config agent.Config
}

// permissive lets an agent do everything, in every mode.
var permissive = json.RawMessage(`{"default":"allow"}`)

// ways are all that are tested.
var ways = []way{
	{"codex exec", agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Sandbox: "danger-full-access"}},
	{"codex duplex", agent.Config{Agent: agent.Codex, Mode: agent.ModeDuplex, Sandbox: "danger-full-access", Policy: permissive}},
	{"claude exec", agent.Config{Agent: agent.Claude, Mode: agent.ModeExec}},
	{"claude duplex", agent.Config{Agent: agent.Claude, Mode: agent.ModeDuplex, Policy: permissive}},
	{"opencode exec", agent.Config{Agent: agent.OpenCode, Mode: agent.ModeExec}},
	{"pi exec", agent.Config{Agent: agent.Pi, Mode: agent.ModeExec}},
	{"pi duplex", agent.Config{Agent: agent.Pi, Mode: agent.ModeDuplex, Policy: permissive}},
}

// eachWay runs a test for every agent and mode, beside each other.
func eachWay(t *testing.T, test func(t *testing.T, w way)) {
	t.Helper()
	eachOf(t, ways, test)
}

func eachOf(t *testing.T, ways []way, test func(t *testing.T, w way)) {
	t.Helper()
	t.Parallel()
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			test(t, w)
		})
	}
}

func newRig(t *testing.T, w way, script modeltest.Script) *rig {
	t.Helper()
	m, err := modeltest.New(script)
	if err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	h, err := host.Open(host.Options{Engines: map[string]host.NewEngine{
		spool.EngineAgent: func(owner string) (engine.Engine, error) {
			return agent.New(agent.Options{Owner: owner, Dir: state})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), turnTime)
	r := &rig{t: t, agent: w.config.Agent, config: w.config, model: m, host: h, dir: t.TempDir(), ctx: ctx}
	home := w.config.Agent
	if home == agent.ACP {
		home = w.config.Command[0]
	}
	r.env = agenttest.Home(t, home, m)
	t.Cleanup(func() {
		cancel()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		m.Close()
	})
	return r
}

// start starts a conversation, with the config changed as wanted.
func (r *rig) start(change func(*agent.Config)) *spool.Run {
	r.t.Helper()
	c := r.config
	if change != nil {
		change(&c)
	}
	data, err := json.Marshal(c)
	if err != nil {
		r.t.Fatal(err)
	}
	run, err := spool.Start(r.ctx, r.host, spool.Spec{
		Engine: spool.EngineAgent, Cwd: r.dir, Env: maps.Clone(r.env), Config: data,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// story is what happened in a turn.
type story struct {
	events  []spool.Event
	start   *spool.AgentStart
	actions []spool.Action // completed
	begun   []spool.Action
	retries []spool.Retry
	said    []string
	done    spool.Done
}

// tell reads a turn to its end.
func (r *rig) tell(t *spool.Turn) *story {
	r.t.Helper()
	s := &story{}
	ended := false
	for e, err := range t.Events(r.ctx) {
		if err != nil {
			r.t.Fatalf("read the turn: %v\n%s", err, s)
		}
		e.Bytes, e.Data = append([]byte(nil), e.Bytes...), append(json.RawMessage(nil), e.Data...)
		s.events = append(s.events, e)
		switch e.Kind {
		case spool.KindStarted:
			s.start = new(spool.AgentStart)
			r.decode(&e, s.start)
		case spool.KindAction:
			var a spool.Action
			r.decode(&e, &a)
			if a.Kind == spool.ActionTurn {
				continue
			}
			switch a.Phase {
			case spool.ActionCompleted:
				s.actions = append(s.actions, a)
			case spool.ActionStarted:
				s.begun = append(s.begun, a)
			}
		case spool.KindRetry:
			var retry spool.Retry
			r.decode(&e, &retry)
			s.retries = append(s.retries, retry)
		case spool.KindMessage:
			var m spool.Message
			r.decode(&e, &m)
			s.said = append(s.said, m.Text)
		case spool.KindDone:
			r.decode(&e, &s.done)
			ended = true
		}
	}
	if !ended {
		r.t.Fatalf("the turn has no end:\n%s", s)
	}
	return s
}

func (r *rig) decode(e *spool.Event, v any) {
	r.t.Helper()
	if err := json.Unmarshal(e.Data, v); err != nil {
		r.t.Fatalf("%s: %v", e.Data, err)
	}
}

// String lists the events, for when something is wrong.
func (s *story) String() string {
	var b strings.Builder
	for _, e := range s.events {
		line := e.AppendJSON(nil)
		b.Write(line[:min(len(line), 600)])
		b.WriteByte('\n')
	}
	return b.String()
}

// say has a run do what a prompt says.
func (r *rig) say(run *spool.Run, text string) *story {
	r.t.Helper()
	turn, err := run.Prompt(r.ctx, spool.Prompt{Text: text})
	if err != nil {
		r.t.Fatal(err)
	}
	return r.tell(turn)
}

// end ends a run as its last prompt would, and returns how.
func (r *rig) end(run *spool.Run) spool.Outcome {
	r.t.Helper()
	if err := run.Stdin(r.ctx).Close(); err != nil && !errors.Is(err, spool.ErrInputClosed) {
		r.t.Fatal(err)
	}
	o, err := run.Wait(r.ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return o
}

// wantDone checks how a turn ended.
func (r *rig) wantDone(s *story, want spool.TurnOutcome) {
	r.t.Helper()
	if s.done.Outcome != want {
		r.t.Errorf("outcome %s, want %s; error %q (%s)\n%s", s.done.Outcome, want, s.done.Error, s.done.ErrorClass, s)
	}
}

// command returns the one command of a turn.
func (r *rig) command(s *story) spool.Action {
	r.t.Helper()
	var found []spool.Action
	for _, a := range s.actions {
		if a.Kind == spool.ActionCommand {
			found = append(found, a)
		}
	}
	if len(found) != 1 {
		r.t.Fatalf("%d commands, want 1:\n%s", len(found), s)
	}
	return found[0]
}

// alive reports whether a process runs. One that nobody has waited for does
// not.
func alive(t *testing.T, pid string) bool {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatalf("%q is no process id", pid)
	}
	if errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
		return false
	}
	b, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	_, state, _ := strings.Cut(string(b), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
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
		r.wantDone(s, spool.TurnSuccess)
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
		r.wantDone(s2, spool.TurnSuccess)
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
	var u spool.Usage
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
		turn, err := run.Prompt(r.ctx, spool.Prompt{Text: "Sleep."})
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
		if w.config.Mode == agent.ModeDuplex {
			r.waitFor(func() bool { return !alive(t, shell) }) // the agent ends it in its own time
		} else if alive(t, shell) {
			t.Errorf("the command still runs after %s\n%s", s.done.StoppedWith, s)
		}
		if len(s.begun) > len(s.actions) {
			t.Errorf("%d actions began and %d ended\n%s", len(s.begun), len(s.actions), s)
		}
		s2 := r.say(run, "Are you there?")
		r.wantDone(s2, spool.TurnSuccess)
		if s2.done.Answer != "Here again." {
			t.Errorf("answer %q\n%s", s2.done.Answer, s2)
		}
		r.end(run)
	})
}

// TestAgentUnauthorized checks that a refused key is said to be that.
func TestAgentUnauthorized(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.Unauthorized))
		run := r.start(nil)
		s := r.say(run, "Hello?")
		r.wantDone(s, spool.TurnFailed)
		if s.done.ErrorClass != spool.ClassAuth || s.done.Error == "" {
			t.Errorf("error %q of class %q\n%s", s.done.Error, s.done.ErrorClass, s)
		}
		r.end(run)
	})
}

// TestAgentUnknownModel checks that a model which does not exist is said to be
// the reason.
func TestAgentUnknownModel(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.UnknownModel))
		run := r.start(nil)
		s := r.say(run, "Hello?")
		r.wantDone(s, spool.TurnFailed)
		if s.done.Error == "" || s.done.ErrorClass != spool.ClassModel {
			t.Errorf("error %q of class %q\n%s", s.done.Error, s.done.ErrorClass, s)
		}
		r.end(run)
	})
}

// TestAgentTriesAgain checks that a limit and a broken connection are retries
// on the way to success.
func TestAgentTriesAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.RateLimited.Then(1, modeltest.Cut("I beg").Then(1, modeltest.Say("At last."))),
		))
		run := r.start(nil)
		s := r.say(run, "Try.")
		r.wantDone(s, spool.TurnSuccess)
		if s.done.Answer != "At last." {
			t.Errorf("answer %q\n%s", s.done.Answer, s)
		}
		if n := len(r.model.Requests()); n < 3 {
			t.Errorf("the model was asked %d times", n)
		}
		// opencode tells nobody.
		if len(s.retries) == 0 && r.agent != agent.OpenCode {
			t.Errorf("no retry was told\n%s", s)
		}
		r.end(run)
	})
}

// TestAgentTokenLimit checks that an answer which was cut off is no success
// without a word, where the agent tells.
func TestAgentTokenLimit(t *testing.T) {
	// opencode is left out: a start takes it seconds, and its translation is
	// tested without.
	eachOf(t, slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.config.Agent == agent.OpenCode }), func(t *testing.T, w way) {
		r := newRig(t, w, modeltest.ByTurn(modeltest.TokenLimit("And so it goes on and")))
		run := r.start(nil)
		s := r.say(run, "Tell me everything.")
		if s.done.Outcome.OK() || s.done.ErrorClass != spool.ClassContext {
			t.Errorf("outcome %s, error %q of class %q\n%s", s.done.Outcome, s.done.Error, s.done.ErrorClass, s)
		}
		r.end(run)
	})
}

// TestAgentTwoPromptsToOneSession has two runs work in one session: one after
// the other, never at once.
func TestAgentTwoPromptsToOneSession(t *testing.T) {
	eachWay(t, func(t *testing.T, w way) {
		gate := make(chan struct{})
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.Shell("true"),
			modeltest.Say("One.").After(gate),
			modeltest.Say("Two."),
		))
		a := r.start(nil)
		turnA, err := a.Prompt(r.ctx, spool.Prompt{Text: "A"})
		if err != nil {
			t.Fatal(err)
		}
		session := r.session(turnA)
		b := r.start(func(c *agent.Config) { c.Resume = session })
		turnB, err := b.Prompt(r.ctx, spool.Prompt{Text: "B"})
		if err != nil {
			t.Fatal(err)
		}
		r.waitNotice(turnB, agent.NoticeWaiting)
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
			var s spool.AgentStart
			r.decode(&e, &s)
			return s.Resume
		}
	}
	r.t.Fatal("no session")
	return ""
}

// waitFor waits until something is so that nobody tells of.
func (r *rig) waitFor(so func() bool) {
	r.t.Helper()
	for !so() {
		if r.ctx.Err() != nil {
			r.t.Fatal("it does not happen")
		}
		time.Sleep(5 * time.Millisecond)
	}
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
			s := r.answered(run, spool.Deny)
			if _, err := os.Stat(filepath.Join(r.dir, "made.txt")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the command ran: %v\n%s", err, s)
			}
			if len(s.begun) > len(s.actions) {
				t.Errorf("%d actions began and %d ended\n%s", len(s.begun), len(s.actions), s)
			}
			s = r.answered(run, spool.Allow)
			r.wantDone(s, spool.TurnSuccess)
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
	turn, err := run.Prompt(r.ctx, spool.Prompt{Text: "Make the file."})
	if err != nil {
		r.t.Fatal(err)
	}
	seq, ask, what := r.askedAbout(turn)
	if ask.Kind != spool.AskApproval || what.Kind != spool.ActionCommand || !strings.Contains(what.Command, "echo made") {
		r.t.Errorf("asked %+v about %+v", ask, what)
	}
	data, err := json.Marshal(spool.Decision{Choice: choice, Message: "Not here."})
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
	turn, err := run.Prompt(r.ctx, spool.Prompt{Text: "Sleep."})
	if err != nil {
		r.t.Fatal(err)
	}
	seq, _, _ := r.askedAbout(turn)
	if err := run.Reply(r.ctx, seq, spool.Allow); err != nil {
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
	r.wantDone(s, spool.TurnSuccess)
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
				c.Policy = json.RawMessage(`{"default":"deny","rule":[{"verdict":"allow","command":["touch"]}]}`)
			})
			s := r.say(run, "Make both.")
			r.wantDone(s, spool.TurnSuccess)
			if _, err := os.Stat(filepath.Join(r.dir, "allowed.txt")); err != nil {
				t.Errorf("%v\n%s", err, s)
			}
			if _, err := os.Stat(filepath.Join(r.dir, "denied")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the other was made: %v\n%s", err, s)
			}
			var by []string
			for _, e := range s.events {
				var n spool.Notice
				if e.Kind == spool.KindNotice && json.Unmarshal(e.Data, &n) == nil && n.Code == spool.NoticeAskClosed {
					by = append(by, n.By)
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
