package agents

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/skiptest"
)

// Every agent can write to its own directories, and the report of the run lists
// them.
func TestIsolatedAgentsKeepTheirState(t *testing.T) {
	e := newEngine(t)
	home, cwd := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".claude.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	program := fakeCLI(t, "exit 0")
	gemini := filepath.Join(filepath.Dir(program), "gemini")
	if err := os.Symlink(program, gemini); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		config agent.Config
		env    map[string]string
		want   []string
	}{
		{config: agent.Config{Agent: agent.Codex, Sandbox: "danger-full-access"}, want: []string{".codex"}},
		{config: agent.Config{Agent: agent.Codex, SkipPermissions: true}, env: map[string]string{"CODEX_HOME": home + "/elsewhere"}, want: []string{"elsewhere"}},
		{config: agent.Config{Agent: agent.Claude}, want: []string{".claude", ".claude.json"}},
		{config: agent.Config{Agent: agent.OpenCode}, want: []string{".config/opencode", ".local/share/opencode", ".local/state/opencode", ".cache/opencode"}},
		{config: agent.Config{Agent: agent.Pi}, want: []string{".pi/agent"}},
		{config: agent.Config{Agent: agent.ACP, Command: []string{gemini, "--acp"}}, want: []string{".gemini"}},
	} {
		c := tt.config
		if c.Agent != agent.ACP {
			c.Program = program
		}
		env := map[string]string{"PATH": os.Getenv("PATH"), "HOME": home}
		for k, v := range tt.env {
			env[k] = v
		}
		s, err := e.Start(t.Context(), spool.Spec{Engine: agent.Engine, Config: mustJSON(t, c), Cwd: cwd, Env: env,
			Isolation: &spool.Isolation{Profile: "workspace-write", Protected: []string{".git"}}}, enginetest.NewLog())
		var refusal *isolate.Refusal
		if errors.As(err, &refusal) {
			skiptest.Missing(t, "%v", err)
		}
		if err != nil {
			t.Fatalf("%s: %v", c.Agent, err)
		}
		want := []string{cwd}
		for _, path := range tt.want {
			want = append(want, filepath.Join(home, path))
			if _, err := os.Stat(filepath.Join(home, path)); err != nil {
				t.Error(err)
			}
		}
		if i := s.(engine.Isolated).Isolation(); i == nil || !slices.Equal(i.Writable, want) || !slices.Equal(i.Protected, []string{".git"}) {
			t.Errorf("%s: isolation %+v, want writable %q", c.Agent, i, want)
		}
		if err := s.Control(t.Context(), spool.Control{Op: spool.ControlKill}); err != nil {
			t.Error(err)
		}
		s.Wait()
	}
	if _, err := os.Stat(filepath.Join(home, ".codex", ".git")); err == nil {
		t.Error("a protected path was made in a directory of the agent")
	}
}

// What an agent cannot have is refused at the start of the run.
func TestIsolationOfAgentsIsRefused(t *testing.T) {
	e := newEngine(t)
	for _, tt := range []struct {
		config    agent.Config
		isolation spool.Isolation
		reason    string
		text      string
	}{
		{agent.Config{Agent: agent.Codex}, spool.Isolation{Profile: "read-only"}, engine.StartInvalid, "codex cannot make its own sandbox"},
		{agent.Config{Agent: agent.Pi}, spool.Isolation{Profile: "readonly"}, engine.StartInvalid, "read-only"},
		{agent.Config{Agent: agent.Pi}, spool.Isolation{Profile: "strict"}, engine.StartUnsupported, `isolation_unavailable: profile "strict" needs`},
	} {
		tt.config.Program = fakeCLI(t, "exit 0")
		_, err := e.Start(t.Context(), spool.Spec{Engine: agent.Engine, Config: mustJSON(t, tt.config), Cwd: t.TempDir(), Isolation: &tt.isolation,
			Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()}}, enginetest.NewLog())
		var se *spool.StartError
		if !errors.As(err, &se) || se.Reason != tt.reason || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%+v: %v, want %s %q", tt.isolation, err, tt.reason, tt.text)
		}
	}
}

// converseAt starts an agent with the limits and the isolation of a spec in the
// directory of its program, the only one for temporary files that it sees if it is
// isolated.
func converseAt(t *testing.T, c agent.Config, spec spool.Spec) *chat {
	t.Helper()
	spec.Engine, spec.Config, spec.Cwd = agent.Engine, mustJSON(t, c), filepath.Dir(c.Program)
	spec.Env = map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()}
	log := enginetest.NewLog()
	s, err := newEngine(t).Start(t.Context(), spec, log)
	var refusal *isolate.Refusal
	if errors.As(err, &refusal) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil && !errors.Is(err, spool.ErrEnded) {
			t.Errorf("kill: %v", err)
		}
		s.Wait()
	})
	return &chat{t, s, log}
}

// oneTurn has one turn with an agent of [converseAt], stops it, and returns the log.
func oneTurn(t *testing.T, c agent.Config, spec spool.Spec) *enginetest.Log {
	t.Helper()
	r := converseAt(t, c, spec)
	if d := r.done(r.say("go")); d.Outcome != spool.TurnOK {
		t.Errorf("done is %+v", d)
	}
	r.control(spool.Control{Op: spool.ControlStop})
	r.s.Wait()
	return r.log
}

// The log tells which hosts an agent was refused, and what its network carried.
func TestIsolatedAgentWithNetwork(t *testing.T) {
	c := quick(fakeCLI(t, "curl -s -o /dev/null http://bad.example.org/\n"+printLines(codexThread, codexSays("m", "hi"), codexOver)))
	c.Sandbox = "danger-full-access"
	log := oneTurn(t, c, spool.Spec{Isolation: &spool.Isolation{Profile: "net-allow", Hosts: []string{"*.example.org"}, DeniedHosts: []string{"bad.example.org"}}})
	var codes []string
	for _, n := range events[spool.Notice](t, log, spool.KindNotice) {
		if strings.Contains(string(n.Data), "bad.example.org") {
			codes = append(codes, n.Code)
		}
	}
	if want := []string{isolate.NoticeHost, isolate.NoticeTraffic}; !slices.Equal(codes, want) {
		t.Errorf("notices %q, want %q; the log is\n%s", codes, want, log.Dump(t))
	}
}

// An agent starts with the limit of open files of its run, isolated or not.
func TestOpenFilesLimitOfAgents(t *testing.T) {
	for _, i := range []*spool.Isolation{nil, {Profile: "workspace-write"}} {
		c := quick(fakeCLI(t, "ulimit -n >limit\n"+printLines(codexThread, codexSays("m", "hi"), codexOver)))
		c.Sandbox = "danger-full-access"
		oneTurn(t, c, spool.Spec{Limits: spool.Limits{OpenFiles: 100}, Isolation: i})
		if b, err := os.ReadFile(filepath.Join(filepath.Dir(c.Program), "limit")); err != nil || string(b) != "100\n" {
			t.Errorf("%+v: the limit is %q, %v", i, b, err)
		}
	}
}

// needsCurl skips a test on a machine without curl.
func needsCurl(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		skiptest.Missing(t, "%v", err)
	}
}

// A turn asks about hosts that no rule names. Each has a process of its own here, and
// the answers hold for all.
func TestAgentAsksAboutHosts(t *testing.T) {
	needsCurl(t)
	enginetest.AskHosts(t, func(t *testing.T, i spool.Isolation) *enginetest.HostRun {
		c := quick(fakeCLI(t, "curl -s -o /dev/null -w '%{http_code}' --noproxy '' \"$(cat url)\" >status\n"+printLines(codexThread, codexSays("m", "hi"), codexOver)))
		c.Sandbox = "danger-full-access"
		r := converseAt(t, c, spool.Spec{Isolation: &i})
		dir := filepath.Dir(c.Program)
		return &enginetest.HostRun{Session: r.s, Log: r.log, Turns: true, Get: func(t testing.TB, url string) func() string {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "url"), []byte(url), 0o644); err != nil {
				t.Fatal(err)
			}
			turn := r.say("go")
			return func() string {
				t.Helper()
				r.done(turn)
				b, err := os.ReadFile(filepath.Join(dir, "status"))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
		}}
	})
}

// fetching is a claude that asks for a permission in each turn while it waits for a
// host, and says in its result what came of both.
const fetching = `while read -r line; do case $line in
*'"initialize"'*) echo '{"type":"control_response","response":{"subtype":"success","request_id":"spool-1","response":{}}}';;
*'"type":"user"'*) echo '` + claudeInit + `'
	curl -s -o /dev/null -w '%{http_code}' --noproxy '' http://side.example/ >status &
	echo '{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"make"}}}';;
*'"behavior":'*) told=deny; case $line in *'"behavior":"allow"'*) told=allow;; esac; wait
	echo '{"type":"result","subtype":"success","is_error":false,"result":"'$told $(cat status)'","session_id":"s-1"}';;
esac; done
`

// Asks about hosts and approvals of an agent are open side by side, and a policy may
// answer both.
func TestAgentAsksAboutHostsBesideApprovals(t *testing.T) {
	needsCurl(t)
	start := func(t *testing.T, c agent.Config) *chat {
		c.Agent, c.Mode, c.Program = agent.Claude, agent.ModeDuplex, fakeCLI(t, fetching)
		return converseAt(t, c, spool.Spec{Isolation: &spool.Isolation{Profile: "net-allow", AskHosts: true}})
	}
	t.Run("person", func(t *testing.T) {
		r := start(t, agent.Config{})
		turn := r.say("go")
		asks := make(map[string]spool.Event)
		for n := 1; n <= 2; n++ {
			seq := r.askAt(n)
			e := r.log.Until(t, "the ask", func(e spool.Event) bool { return e.Seq == seq })
			asks[enginetest.Data[spool.Ask](t, e).Kind] = e
		}
		network, approval := asks[isolate.AskNetwork], asks[agent.AskApproval]
		if network.Turn != turn || approval.Turn != turn {
			t.Fatalf("asks of the turns %d and %d, want %d\n%s", network.Turn, approval.Turn, turn, r.log.Dump(t))
		}
		r.answer(approval.Seq, agent.Allow)
		r.answer(network.Seq, agent.Decision{Choice: agent.Deny})
		if d := r.done(turn); d.Answer != "allow 403" {
			t.Errorf("done is %+v", d)
		}
	})
	t.Run("policy", func(t *testing.T) {
		r := start(t, agent.Config{Policy: &agent.Policy{Default: agent.VerdictAllow, Rules: []agent.Rule{{Verdict: agent.VerdictDeny, Kinds: []string{"network"}, Tools: []string{"side.example:*"}}}}})
		if d := r.done(r.say("go")); d.Answer != "allow 403" {
			t.Errorf("done is %+v", d)
		}
		by := r.decided()
		slices.Sort(by)
		if !slices.Equal(by, []string{"policy: default", "policy: rule 1"}) {
			t.Errorf("decided by %q", by)
		}
	})
}
