package main_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/modeltest"
)

// isolate isolates the runs of a rig, and gives the agent a home that such a run
// does not see in place of its own /tmp. It returns the home.
func (r *rig) isolate() string {
	r.t.Helper()
	r.isolation = &spool.Isolation{Profile: "workspace-write", Protected: []string{".git"}}
	cache, err := os.UserCacheDir()
	if err != nil {
		r.t.Fatal(err)
	}
	parent := filepath.Join(cache, "spool-test")
	if err := os.MkdirAll(parent, 0o700); err != nil {
		r.t.Fatal(err)
	}
	home, err := os.MkdirTemp(parent, "home-")
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := r.host.Close(); err != nil { // no agent writes there any more
			r.t.Error(err)
		}
		if err := os.RemoveAll(home); err != nil {
			r.t.Error(err)
		}
	})
	name := r.agent
	if name == agent.ACP {
		name = r.config.Command[0]
	}
	env, err := agenttest.WriteHome(home, name, r.model)
	if err != nil {
		r.t.Fatal(err)
	}
	if ask := r.env["OPENCODE_PERMISSION"]; ask != "" {
		env["OPENCODE_PERMISSION"] = ask
	}
	r.env = env
	return home
}

// TestAgentIsolated has every agent write into its working directory, which works,
// and elsewhere, which does not. The agent itself keeps its session, which another
// isolated run resumes.
func TestAgentIsolated(t *testing.T) {
	one := slices.DeleteFunc(slices.Clone(ways), func(w way) bool {
		return w.name != "codex duplex" && w.name != "claude exec" && w.name != "opencode exec" && w.name != "pi exec"
	})
	eachOf(t, one, func(t *testing.T, w way) {
		outside := filepath.Join(t.TempDir(), "outside")
		r := newRig(t, w, modeltest.ByTurn(
			modeltest.Shell("echo in >inside.txt; (echo out >"+outside+") 2>/dev/null || echo denied-one; (echo out >/spool-isolate-test) 2>/dev/null || echo denied-two; (mkdir .git/hooks) 2>/dev/null || echo denied-three"),
			modeltest.Say("All done."),
			modeltest.Shell("cat inside.txt"),
			modeltest.Say("It is there."),
		))
		home := r.isolate()
		run := r.start(nil)
		s := r.say(run, "Write.")
		r.wantDone(s, spool.TurnOK)
		c := r.command(s)
		for _, want := range []string{"denied-one", "denied-two", "denied-three"} {
			if !strings.Contains(c.Output, want) {
				t.Errorf("no %s in command %+v\n%s", want, c, s)
			}
		}
		if b, err := os.ReadFile(filepath.Join(r.dir, "inside.txt")); err != nil || string(b) != "in\n" {
			t.Errorf("inside: %q, %v", b, err)
		}
		for _, path := range []string{outside, "/spool-isolate-test"} {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("it wrote %s", path)
			}
		}
		info, err := run.Info(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		i := info.Isolation
		if i == nil || i.Mechanism != isolate.Namespaces || !slices.Contains(i.Guarantees, "W") || !slices.Equal(i.Protected, []string{".git"}) {
			t.Errorf("isolation %+v", i)
		} else if !slices.Contains(i.Writable, r.dir) || !slices.ContainsFunc(i.Writable, func(p string) bool { return isolate.Below(home, p) }) {
			t.Errorf("writable %q, want %s and a directory in %s", i.Writable, r.dir, home)
		}
		r.end(run)

		again := r.start(func(c *agent.Config) { c.Resume = s.done.Resume })
		s = r.say(again, "Look.")
		r.wantDone(s, spool.TurnOK)
		if s.done.Answer != "It is there." {
			t.Errorf("answer %q\n%s", s.done.Answer, s)
		}
		r.end(again)
		if err := r.model.Err(); err != nil {
			t.Error(err)
		}
	})
}

// TestAgentIsolatedAsks checks that an isolated agent asks, is answered, and then
// does what was allowed.
func TestAgentIsolatedAsks(t *testing.T) {
	eachOf(t, asking, func(t *testing.T, w way) {
		r := newAskingRig(t, w, scriptFunc(func(q *modeltest.Request) modeltest.Step {
			if outs := q.Outputs(); len(outs) > 0 && q.Input[len(q.Input)-1].Output != nil {
				return modeltest.Say("So be it.")
			}
			return modeltest.Shell("echo made >made.txt")
		}))
		r.isolate()
		run := r.start(nil)
		s := r.answered(run, agent.Allow)
		r.wantDone(s, spool.TurnOK)
		if got, err := os.ReadFile(filepath.Join(r.dir, "made.txt")); err != nil || string(got) != "made\n" || s.done.Answer != "So be it." {
			t.Errorf("made %q, %v; answer %q\n%s", got, err, s.done.Answer, s)
		}
		r.end(run)
	})
}
