package kernel

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/python"
)

// script makes an executable file.
func script(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestInterpreterIsTheFirstThatWorks(t *testing.T) {
	e := open(t)
	dir := t.TempDir()
	real := testPython(t)
	find := func(env map[string]string) string {
		t.Helper()
		r, err := tryStart(t, e, python.KernelConfig{Zygote: python.ZygoteOff}, spool.Spec{Cwd: dir, Env: env})
		if err != nil {
			t.Fatal(err)
		}
		defer r.end()
		return r.ok("import os; os.environ.get('WHO')").result
	}
	who := func(name string) string { return "#!/bin/sh\nWHO=" + name + " exec " + real + " \"$@\"\n" }
	script(t, dir+"/bin/python3", who("path"))
	path := map[string]string{"PATH": dir + "/bin:/usr/bin:/bin", "HOME": dir}
	if got := find(path); got != "'path'" {
		t.Errorf("PATH: %s", got)
	}
	script(t, dir+"/venv/bin/python", who("venv"))
	script(t, dir+"/.venv/bin/python", "#!/bin/sh\necho broken >&2; exit 3\n") // does not work: the next does
	if got := find(path); got != "'venv'" {
		t.Errorf("venv: %s", got)
	}
	script(t, dir+"/active/bin/python", who("active"))
	path["VIRTUAL_ENV"] = dir + "/active"
	if got := find(path); got != "'active'" {
		t.Errorf("VIRTUAL_ENV: %s", got)
	}
	path["VIRTUAL_ENV"] = dir + "/gone"
	if got := find(path); got != "'venv'" {
		t.Errorf("VIRTUAL_ENV that is gone: %s", got)
	}
}

func TestStartErrorsSayWhatToDo(t *testing.T) {
	e := open(t)
	dir := t.TempDir()
	script(t, dir+"/broken", "#!/bin/sh\necho no such thing as a module >&2; exit 3\n")
	script(t, dir+"/hangs", "#!/bin/sh\nexec sleep 1000\n")
	if err := os.WriteFile(dir+"/plain", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		cfg    python.KernelConfig
		spec   spool.Spec
		reason string
		text   string
	}{
		{"missing interpreter", python.KernelConfig{Interpreter: dir + "/none"}, spool.Spec{}, engine.StartNotFound, "no such file"},
		{"not executable", python.KernelConfig{Interpreter: dir + "/plain"}, spool.Spec{}, engine.StartNotFound, "permission denied"},
		{"broken interpreter", python.KernelConfig{Interpreter: dir + "/broken"}, spool.Spec{}, engine.StartNotFound, "exited with code 3: no such thing as a module"},
		{"one that hangs", python.KernelConfig{Interpreter: dir + "/hangs", StartTimeoutMs: 200}, spool.Spec{}, engine.StartNotFound, "ready in time"},
		{"none at all", python.KernelConfig{}, spool.Spec{Cwd: dir, Env: map[string]string{"PATH": dir + "/empty", "VIRTUAL_ENV": dir}}, engine.StartNotFound, "VIRTUAL_ENV"},
		{"missing directory", python.KernelConfig{Interpreter: testPython(t)}, spool.Spec{Cwd: dir + "/none"}, engine.StartBadCwd, "no such file"},
		{"directory is a file", python.KernelConfig{Interpreter: testPython(t)}, spool.Spec{Cwd: dir + "/plain"}, engine.StartBadCwd, "not a directory"},
		{"argv", python.KernelConfig{}, spool.Spec{Argv: []string{"x"}}, engine.StartInvalid, "cells"},
		{"terminal", python.KernelConfig{}, spool.Spec{TTY: &spool.Size{}}, engine.StartInvalid, "terminal"},
		{"bad policy", python.KernelConfig{Input: "bogus"}, spool.Spec{}, engine.StartInvalid, "bogus"},
		{"bad zygote", python.KernelConfig{Zygote: "bogus"}, spool.Spec{}, engine.StartInvalid, "bogus"},
		{"negative", python.KernelConfig{KillMs: -1}, spool.Spec{}, engine.StartInvalid, "kill_ms"},
	}
	for _, tt := range tests {
		_, err := tryStart(t, e, tt.cfg, tt.spec)
		var se *spool.StartError
		if !errors.As(err, &se) || se.Reason != tt.reason || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestEnvironmentIsFiltered(t *testing.T) {
	inherited := []string{
		"PATH=/bin", "HOME=/h", "LC_TIME=C", "PYTHONPATH=/p", "https_proxy=http://x", "OPENAI_API_KEY=k", "AWS_SECRET=s", "SSH_AUTH_SOCK=/s",
		"PYTHON_KEYRING_TOKEN=t", "MINE=1", "MY_TOKEN=2",
	}
	spec := &spool.Spec{Env: map[string]string{"EXTRA_KEY": "given"}}
	got, err := environment(spec, inherited, []string{"MINE", "MY_*"})
	if err != nil {
		t.Fatal(err)
	}
	want := "EXTRA_KEY=given HOME=/h LC_TIME=C MINE=1 MY_TOKEN=2 PATH=/bin PYTHONPATH=/p https_proxy=http://x"
	if s := strings.Join(got, " "); s != want {
		t.Errorf("environment is %s", s)
	}
	spec.EnvPolicy = &spool.EnvPolicy{Inherit: "none"}
	if got, err = environment(spec, inherited, nil); err != nil || strings.Join(got, " ") != "EXTRA_KEY=given" {
		t.Errorf("with a policy: %v, %v", got, err)
	}
}
