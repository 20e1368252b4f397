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
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/skiptest"
)

// turnTime bounds one turn of a real agent: opencode takes ten seconds on a
// busy machine to start.
const turnTime = 8 * time.Minute

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

	isolation *spool.Isolation // of every run; nil for none
}

// a way is an agent and how to talk to it.
type way struct {
	name   string
	config agent.Config
}

// permissive lets an agent do everything, in every mode.
var permissive = &agent.Policy{Default: agent.VerdictAllow}

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

// quickWays are the ways without opencode, a start of which takes seconds of processor
// time, for what Spool does for every agent alike and what recorded output shows.
var quickWays = slices.DeleteFunc(slices.Clone(ways), func(w way) bool { return w.config.Agent == agent.OpenCode })

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
		agent.Engine: func(owner string) (engine.Engine, error) {
			return agents.New(agents.Options{Owner: owner, Dir: state})
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
		Engine: agent.Engine, Cwd: r.dir, Env: maps.Clone(r.env), Config: data, Isolation: r.isolation,
	})
	var refusal *isolate.Refusal
	if errors.As(err, &refusal) {
		skiptest.Missing(r.t, "%v", err)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return run
}

// story is what happened in a turn.
type story struct {
	events  []spool.Event
	start   *agent.Started
	actions []agent.Action // completed
	begun   []agent.Action
	retries []agent.Retry
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
			s.start = new(agent.Started)
			r.decode(&e, s.start)
		case agent.KindAction:
			var a agent.Action
			r.decode(&e, &a)
			if a.Kind == agent.ActionTurn {
				continue
			}
			switch a.Phase {
			case agent.ActionCompleted:
				s.actions = append(s.actions, a)
			case agent.ActionStarted:
				s.begun = append(s.begun, a)
			}
		case agent.KindRetry:
			var retry agent.Retry
			r.decode(&e, &retry)
			s.retries = append(s.retries, retry)
		case agent.KindMessage:
			var m agent.Message
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
	turn, err := run.Prompt(r.ctx, "", spool.Prompt{Text: text})
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

// waitFor waits until something is so that nobody tells of.
func (r *rig) waitFor(so func() bool) {
	r.t.Helper()
	polltest.Until(r.t, "what was expected", so)
}
