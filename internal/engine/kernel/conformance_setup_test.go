//go:build linux

package kernel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/python"
)

// Which interpreter.

// venv makes an environment.
func venv(t *testing.T, dir string) string {
	t.Helper()
	if len(pythons()) == 0 {
		t.Fatal("no Python 3.9 or newer is installed")
	}
	if out, err := exec.Command(pythons()[0], "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

func TestInterpreterIsThatOfTheEnvironment(t *testing.T) {
	cwd := t.TempDir()
	in := spec(func(s *spool.Spec) { s.Cwd = cwd })
	outside := venv(t, filepath.Join(t.TempDir(), "outside"))
	inside := venv(t, filepath.Join(cwd, ".venv"))
	prefix := "import sys, os; sys.prefix, os.environ.get('VIRTUAL_ENV'), os.environ['PATH'].split(':')[0]"
	want := func(dir string) string { return fmt.Sprintf("('%s', '%s', '%s/bin')", dir, dir, dir) }
	one(t, in, spec(func(s *spool.Spec) { s.Env = map[string]string{"VIRTUAL_ENV": outside} })).alive(prefix, want(outside))
	one(t, in).alive(prefix, want(inside))
	explicit := config(func(c *python.KernelConfig) { c.Interpreter = filepath.Join(outside, "bin", "python") })
	one(t, in, explicit).alive("import sys; sys.prefix", fmt.Sprintf("'%s'", outside))
}

func TestBrokenEnvironmentIsPassedOver(t *testing.T) {
	cwd := t.TempDir()
	bin := filepath.Join(cwd, ".venv", "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "python"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s := one(t, spec(func(s *spool.Spec) { s.Cwd = cwd }))
	s.alive("1 + 1", "2")
	_, err := sharedLab(t).tryStart(t, config(func(c *python.KernelConfig) { c.Interpreter = filepath.Join(bin, "python") }))
	var se *spool.StartError
	if !errors.As(err, &se) {
		t.Errorf("an interpreter that was named and does not work: %v", err)
	}
}

func TestMissingInterpreterSaysWhatWasTried(t *testing.T) {
	empty := t.TempDir()
	_, err := sharedLab(t).tryStart(t, spec(func(s *spool.Spec) {
		s.EnvPolicy = &spool.EnvPolicy{Inherit: "none"}
		s.Env = map[string]string{"PATH": empty, "VIRTUAL_ENV": filepath.Join(empty, "gone")}
	}))
	var se *spool.StartError
	if !errors.As(err, &se) || se.Reason != engine.StartNotFound {
		t.Fatalf("error %#v", err)
	}
	for _, want := range []string{"gone", "python3"} {
		if !strings.Contains(se.Error(), want) {
			t.Errorf("%q does not say %q", se, want)
		}
	}
	if se.Hint == "" {
		t.Error("the error has no hint")
	}
	_, err = sharedLab(t).tryStart(t, config(func(c *python.KernelConfig) { c.Interpreter = "/no/such/python" }))
	if !errors.As(err, &se) || se.Reason != engine.StartNotFound || !strings.Contains(se.Error(), "/no/such/python") {
		t.Errorf("error %v", err)
	}
}

func TestMissingDirectoryIsNamed(t *testing.T) {
	_, err := sharedLab(t).tryStart(t, spec(func(s *spool.Spec) { s.Cwd = "/no/such/directory" }))
	var se *spool.StartError
	if !errors.As(err, &se) || se.Reason != engine.StartBadCwd || !strings.Contains(se.Error(), "/no/such/directory") {
		t.Errorf("error %v", err)
	}
}

func TestStartThatHangsIsBounded(t *testing.T) {
	dir := t.TempDir()
	slow := filepath.Join(dir, "python")
	if err := os.WriteFile(slow, []byte("#!/bin/sh\nexec sleep 300\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err := sharedLab(t).tryStart(t, config(func(c *python.KernelConfig) { c.Interpreter, c.StartTimeoutMs = slow, 300 }))
	if err == nil || time.Since(began) > settleIn/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// The environment.

func TestEnvironmentIsFiltered(t *testing.T) {
	l := lab{backend: openHost(t, kernel.Options{Environ: append(os.Environ(),
		"OPENAI_API_KEY=a", "ANTHROPIC_API_KEY=b", "PERPLEXITY_COOKIES=c", "SOME_TOKEN=d", "AWS_SECRET_ACCESS_KEY=e", "LC_TIME=C", "UNKNOWN_THING=f")})}
	names := "import os; [n in os.environ for n in ('PATH', 'HOME', 'LC_TIME', 'OPENAI_API_KEY', 'ANTHROPIC_API_KEY', 'PERPLEXITY_COOKIES', 'SOME_TOKEN', 'AWS_SECRET_ACCESS_KEY', 'UNKNOWN_THING')]"
	l.start(t).alive(names, "[True, True, True, False, False, False, False, False, False]")
	l.start(t, config(func(c *python.KernelConfig) { c.EnvAllow = []string{"UNKNOWN_*", "OPENAI_API_KEY"} })).
		alive(names, "[True, True, True, True, False, False, False, False, True]")
	l.start(t, spec(func(s *spool.Spec) { s.Env = map[string]string{"SOME_TOKEN": "mine", "HOME": "/elsewhere"} })).
		alive("import os; os.environ['SOME_TOKEN'], os.environ['HOME']", "('mine', '/elsewhere')")
}

// Questions.

func TestSecretAnswerIsNotLogged(t *testing.T) {
	s := one(t, asking)
	turn := s.begin(spool.Cell{Code: "import getpass; len(getpass.getpass())"})
	seq, ask := s.asked(turn)
	if !ask.Secret {
		t.Errorf("%+v", ask)
	}
	if err := s.run.Answer(s.ctx, spool.Answer{Ask: seq, Data: json.RawMessage(`"swordfish"`)}, true); err != nil {
		t.Fatal(err)
	}
	s.await(turn).want(spool.TurnOK).wantResult("9")
	for _, e := range s.log() {
		if strings.Contains(string(e.Data)+string(e.Bytes), "swordfish") {
			t.Errorf("event %d has it", e.Seq)
		}
	}
}

// Tools of the host.

func serve(t *testing.T, s *session, tools map[string]spool.Tool) {
	t.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	served := make(chan error, 1)
	go func() { served <- s.run.ServeTools(ctx, 0, tools) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil && ctx.Err() == nil {
			t.Errorf("serve tools: %v", err)
		}
	})
}

func TestTimeStandsStillWhileTheHostWorks(t *testing.T) {
	t.Parallel()
	s := one(t, config(func(c *python.KernelConfig) { c.Tools = []string{"slow"} }))
	serve(t, s, map[string]spool.Tool{"slow": func(ctx context.Context, _ json.RawMessage) (any, error) {
		wait := time.NewTimer(2100 * time.Millisecond) // longer than the cell may take
		defer wait.Stop()
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
		return "done", ctx.Err()
	}})
	s.await(s.begin(spool.Cell{Code: "tool.slow()", TimeoutMs: 2000})).want(spool.TurnOK).wantResult("'done'")
	s.await(s.begin(spool.Cell{Code: "tool.slow()\nimport time; time.sleep(60)", TimeoutMs: 300})).want(spool.TurnTimeout)
}
