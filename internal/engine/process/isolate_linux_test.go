package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/gvisortest"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
)

// isolations are those that this machine must have.
func isolations() map[string]spool.Isolation {
	return map[string]spool.Isolation{
		"namespaces": {Profile: "no-network", Protected: []string{".git"}, Mechanism: "namespaces"},
		"landlock":   {Profile: "no-network", Mechanism: "landlock", Waive: []string{"I", "S", "K", "T"}},
	}
}

// needs skips a test of an isolation that this machine does not have, and fails it
// in CI.
func needs(t *testing.T, e *Engine, i spool.Isolation) {
	t.Helper()
	s, err := e.Start(t.Context(), spool.Spec{Argv: []string{"/bin/true"}, Cwd: t.TempDir(), Isolation: &i}, enginetest.NewLog())
	if err == nil {
		s.Wait()
		return
	}
	skiptest.Missing(t, "%v", err)
}

// isolating starts every run of an engine with an isolation.
type isolating struct {
	*Engine
	isolation spool.Isolation
	cwd       string
}

func (e *isolating) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	i := e.isolation
	i.Writable = []string{"/tmp", e.cwd}
	i.Protected = []string{filepath.Join(e.cwd, ".git")}
	if i.Mechanism == "landlock" {
		i.Protected = nil
	}
	if spec.Cwd == "" {
		spec.Cwd = e.cwd
	}
	spec.Isolation = &i
	return e.Engine.Start(ctx, spec, out)
}

// TestIsolatedConformance runs the suite of engines with isolated processes: their
// output, input, signals, exit codes and ends are the same as without.
func TestIsolatedConformance(t *testing.T) {
	for name, i := range isolations() {
		for _, mode := range modes(t) {
			t.Run(name+"/"+string(mode), func(t *testing.T) {
				needs(t, open(t, Options{Tree: mode}), i)
				s := subject(Options{Tree: mode})
				s.Open = func(t *testing.T) engine.Engine {
					return &isolating{open(t, Options{Tree: mode}), i, t.TempDir()}
				}
				enginetest.Run(t, s)
			})
		}
	}
}

// TestIsolatedKillLeavesNothing kills processes that fork, leave their session and
// lose their parent, and waits for the end of every one of them.
func TestIsolatedKillLeavesNothing(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			e := open(t, Options{Tree: mode})
			i := isolations()["namespaces"]
			needs(t, e, i)
			for range 10 {
				spec := shell(`for i in 1 2 3 4; do (setsid sh -c 'echo up; while :; do sleep 1000; done' &) ; done; sleep 1000`)
				spec.Cwd, spec.Isolation = t.TempDir(), &i
				s, log := start(t, e, spec)
				log.Until(t, "four processes", func(spool.Event) bool { return strings.Count(string(log.Output(t, spool.Stdout)), "up") == 4 })
				control(t, s, spool.Control{Op: spool.ControlKill})
				// The run ends when no process has its streams open.
				if got := enginetest.Wait(t, s); got.Signal != "SIGKILL" {
					t.Errorf("outcome %v", got)
				}
				if n := log.Notices(t); slices.Contains(n, NoticeStreamsHeld) || slices.Contains(n, NoticeKillFailed) {
					t.Errorf("notices %q", n)
				}
			}
		})
	}
}

// TestIsolatedRunsAreApart checks that a run can neither see nor signal another
// run, even if both share a sandbox.
func TestIsolatedRunsAreApart(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			e := open(t, Options{Tree: mode})
			i := isolations()["namespaces"]
			needs(t, e, i)
			first := shell(`echo $$ > pid; echo up; read x; echo alive`)
			first.Cwd, first.Isolation, first.Stdin = t.TempDir(), &i, true
			first.Env = map[string]string{"PATH": "/usr/bin:/bin", "SECRET": "of the first run"}
			a, log := start(t, e, first)
			log.UntilOutput(t, spool.Stdout, "up")
			// In a sandbox of its own the second run may have the number of the first
			// for a process of its own, so only what is of the first counts.
			second := shell(`pid=$(cat pid); ls -d /proc/[0-9]* | wc -l; if [ $pid != $$ ]; then kill -9 $pid; cat /proc/$pid/environ; fi; cat /proc/1/status`)
			second.Cwd, second.Isolation = first.Cwd, &i
			b, out := start(t, e, second)
			enginetest.Wait(t, b)
			text := string(out.Output(t, spool.Stdout))
			if strings.Contains(text, "of the first run") || strings.Contains(text, "Name:") {
				t.Errorf("the second run said\n%s", text)
			}
			if err := a.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
				t.Errorf("the first run: %v", err)
			}
			if got := enginetest.Wait(t, a); got.Code != 0 || string(log.Output(t, spool.Stdout)) != "up\nalive\n" {
				t.Errorf("the first run: %v\n%s", got, log.Dump(t))
			}
		})
	}
}

// TestIsolationFollowsReplacedDirectories checks that a run sees the directory that
// has the path now, not one that had it when the sandbox was made.
func TestIsolationFollowsReplacedDirectories(t *testing.T) {
	e := open(t, Options{})
	i := isolations()["namespaces"]
	needs(t, e, i)
	dir := filepath.Join(t.TempDir(), "work")
	for _, name := range []string{"first", "second"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		spec := shell("echo > " + name)
		spec.Cwd, spec.Isolation = dir, &i
		s, log := start(t, e, spec)
		if got := enginetest.Wait(t, s); got.Code != 0 {
			t.Fatalf("outcome %v:\n%s", got, log.Dump(t))
		}
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIsolationHidesPaths checks that hidden files and directories can neither be
// read nor replaced, below a writable path too.
func TestIsolationHidesPaths(t *testing.T) {
	e := open(t, Options{})
	i := spool.Isolation{Profile: "workspace-write", Hidden: []string{"keys", "token"}}
	needs(t, e, spool.Isolation{Profile: "workspace-write"})
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "keys"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"keys/one", "token", "open"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content of "+name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	spec := shell("cat open keys/one token; ls keys; echo new > token; echo new > keys/two; rm -rf keys token; echo end")
	spec.Cwd, spec.Isolation = dir, &i
	s, log := start(t, e, spec)
	enginetest.Wait(t, s)
	if got := string(log.Output(t, spool.Stdout)); got != "content of open\nend\n" {
		t.Errorf("the run said\n%s", log.Dump(t))
	}
	for _, name := range []string{"keys/one", "token"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != "content of "+name+"\n" {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	i.Mechanism, i.Waive = "landlock", []string{"I", "S", "K", "T"}
	if _, err := e.Start(t.Context(), spec, enginetest.NewLog()); err == nil || !strings.Contains(err.Error(), "it cannot hide a path") {
		t.Errorf("hidden paths with Landlock: %v", err)
	}
}

// TestStrict checks that a strict run reads only what is listed, and has limits.
func TestStrict(t *testing.T) {
	e := open(t, Options{})
	dir, listed := t.TempDir(), t.TempDir()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	here, err := os.MkdirTemp(cache, "spool-test-") // neither listed nor in a /tmp of the run
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(here)
	unlisted := filepath.Join(here, "unlisted")
	if err := os.WriteFile(unlisted, []byte("#!/bin/sh\necho unlisted\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(listed, "file"), []byte("listed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := shell("cat " + listed + "/file; cat " + unlisted + "; ls " + here + "; cat /etc/shadow; echo mine > file && cat file; grep -c root: /etc/passwd; exec tail /dev/zero")
	spec.Cwd, spec.Limits.MemoryBytes, spec.Limits.CPUs = dir, 64<<20, 0.9
	spec.Isolation = &spool.Isolation{Profile: "strict", Readable: []string{listed}, Waive: []string{"H"}}
	if err := e.launcher.TryLimits(64<<20, 0.9); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	s, err := e.Start(t.Context(), spec, enginetest.NewLog())
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	enginetest.Wait(t, s)
	s, log := start(t, e, spec)
	if got := enginetest.Wait(t, s); got.Reason != "ran out of memory (limit 64 MiB)" {
		t.Errorf("outcome %v", got)
	}
	if got := string(log.Output(t, spool.Stdout)); got != "listed\nmine\n1\n" {
		t.Errorf("the run said\n%s", log.Dump(t))
	}
	has := s.(engine.Isolated).Isolation()
	for _, g := range []string{"W", "P", "R", "N0", "I", "K", "S", "M", "C", "T", "U"} {
		if !slices.Contains(has.Guarantees, g) {
			t.Errorf("no %s in %q", g, has.Guarantees)
		}
	}

	// A program that cannot be read cannot be executed either.
	program := spec
	program.Argv = []string{unlisted}
	refused := func(spec spool.Spec, reason, text, hint string) {
		t.Helper()
		_, err := e.Start(t.Context(), spec, enginetest.NewLog())
		var se *spool.StartError
		if !errors.As(err, &se) || se.Reason != reason || !strings.Contains(err.Error(), text) || !strings.Contains(se.Hint, hint) {
			t.Errorf("%v, want %s %q with the hint %q", err, reason, text, hint)
		}
	}
	refused(program, engine.StartNotExecutable, "permission denied", "--readable")
	whole := spec
	whole.Isolation = &spool.Isolation{Profile: "strict"}
	refused(whole, engine.StartUnsupported, `profile "strict" needs H (few system calls)`, "--waive H")
	whole.Limits, whole.Isolation = spool.Limits{}, spec.Isolation
	refused(whole, engine.StartUnsupported, "M, C: the run has no limit", "--memory")
}

// BenchmarkIsolatedStart starts a program in a sandbox and waits for it, beside a
// plain start.
func BenchmarkIsolatedStart(b *testing.B) {
	gvisortest.Use(b)
	for name, i := range map[string]*spool.Isolation{"plain": nil, "gvisor": {Profile: "no-network", Guarantees: []string{"H"}}, "no-network": {Profile: "no-network"}, "read-only": {Profile: "read-only"}} {
		b.Run(name, func(b *testing.B) {
			e := open(b, Options{Spares: 8, Tree: launch.TreeAuto})
			spec := spool.Spec{Argv: []string{"/bin/true"}, Cwd: b.TempDir(), Isolation: i}
			run := func() {
				s, err := e.Start(context.Background(), spec, enginetest.NewLog())
				if err != nil {
					b.Fatal(err)
				}
				s.Wait()
			}
			run()
			for b.Loop() {
				run()
			}
		})
	}
}
