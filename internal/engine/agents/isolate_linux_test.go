package agents

import (
	"errors"
	"os"
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
		{agent.Config{Agent: agent.Pi}, spool.Isolation{Profile: "net-allow", AskHosts: true}, engine.StartInvalid, "an agent cannot ask about hosts"},
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

// The log tells which hosts an agent was refused, and what its network carried.
func TestIsolatedAgentWithNetwork(t *testing.T) {
	c := quick(fakeCLI(t, "curl -s -o /dev/null http://bad.example.org/\n"+printLines(codexThread, codexSays("m", "hi"), codexOver)))
	c.Sandbox = "danger-full-access"
	log := enginetest.NewLog()
	s, err := newEngine(t).Start(t.Context(), spool.Spec{Engine: agent.Engine, Config: mustJSON(t, c), Cwd: filepath.Dir(c.Program),
		Env:       map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()},
		Isolation: &spool.Isolation{Profile: "net-allow", Hosts: []string{"*.example.org"}, DeniedHosts: []string{"bad.example.org"}}}, log)
	var refusal *isolate.Refusal
	if errors.As(err, &refusal) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &chat{t, s, log}
	if d := r.done(r.say("go")); d.Outcome != spool.TurnOK {
		t.Errorf("done is %+v", d)
	}
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlStop}); err != nil {
		t.Error(err)
	}
	s.Wait()
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
		cwd := filepath.Dir(c.Program) // an isolated agent sees no other directory for temporary files
		log := enginetest.NewLog()
		s, err := newEngine(t).Start(t.Context(), spool.Spec{Engine: agent.Engine, Config: mustJSON(t, c), Cwd: cwd, Limits: spool.Limits{OpenFiles: 100},
			Env: map[string]string{"PATH": os.Getenv("PATH"), "HOME": t.TempDir()}, Isolation: i}, log)
		var refusal *isolate.Refusal
		if errors.As(err, &refusal) {
			skiptest.Missing(t, "%v", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		r := &chat{t, s, log}
		if d := r.done(r.say("go")); d.Outcome != spool.TurnOK {
			t.Errorf("done is %+v", d)
		}
		if err := s.Control(t.Context(), spool.Control{Op: spool.ControlStop}); err != nil {
			t.Error(err)
		}
		s.Wait()
		if b, err := os.ReadFile(filepath.Join(cwd, "limit")); err != nil || string(b) != "100\n" {
			t.Errorf("%+v: the limit is %q, %v", i, b, err)
		}
	}
}
