//go:build amd64 || arm64

package pyodide_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

func metricsOf(t *testing.T, l *lab, run *spool.Run) []sandbox.Metrics {
	t.Helper()
	page, err := run.Read(l.ctx, spool.Query{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var all []sandbox.Metrics
	for _, e := range page.Events {
		var n spool.Notice
		if e.Kind != spool.KindNotice || json.Unmarshal(e.Data, &n) != nil || n.Code != sandbox.NoticeMetrics {
			continue
		}
		var m sandbox.Metrics
		if err := json.Unmarshal(n.Data, &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// slowLoad is how long the distribution of reportsMetrics takes to load.
const slowLoad = 100 * time.Millisecond

func reportsMetrics(t *testing.T) {
	l := newLab(t, strings.Replace(echo, "return {", fmt.Sprintf("await new Promise((resolve) => setTimeout(resolve, %d));\n  return {", slowLoad.Milliseconds()), 1))
	prewarm := func() sandbox.Metrics {
		run := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Metrics = true })
		l.do(run, "1")
		m := metricsOf(t, l, run)
		if len(m) != 2 || m[0].Phase != "prewarm" || m[1].Phase != "startup" || m[1].StartupMs == nil || *m[1].StartupMs <= 0 || m[1].Source != "inline" {
			t.Fatalf("metrics %+v", m)
		}
		// Loading the distribution takes long here, and no package is loaded.
		// A timer of Node may be a millisecond early.
		if *m[1].InterpreterMs < slowLoad.Milliseconds()-5 || *m[1].PackageLoadMs != 0 || *m[1].PackageCount != 0 {
			t.Errorf("the interpreter took %d ms to load, %d packages %d ms", *m[1].InterpreterMs, *m[1].PackageCount, *m[1].PackageLoadMs)
		}
		return m[0]
	}
	first := prewarm()
	if !*first.Executed || first.Reason != "executed" || *first.DurationMs <= 0 || first.Dist != l.dist || first.CacheDir == "" {
		t.Errorf("the first is %+v", first)
	}
	second := prewarm()
	if *second.Executed || second.Reason != "cached" || *second.DurationMs != 0 {
		t.Errorf("the second is %+v", second)
	}
}

func earlyOutput(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  options.stdout('loading');
  console.log('with', 2, { a: [1] });
  options.stderr('warning');
  console.warn('another');
  process.stdout.write('no end');
  return { setStdin() {}, async runPythonAsync() { options.stdout('running'); } };
}`)
	e := l.do(l.start(nil), "1")
	if e.stdout != "loading\nwith 2 { a: [ 1 ] }\nno endrunning\n" || e.stderr != "warning\nanother\n" {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
}

func cannotLoad(t *testing.T) {
	for what, test := range map[string]struct{ module, want string }{
		"one that throws":                     {"export async function loadPyodide() { throw new Error('no python today'); }", "no python today"},
		"one that exports nothing":            {"export const x = 1;", "exports no loadPyodide"},
		"one that is not JavaScript":          {"this is not", "SyntaxError"},
		"one that ends its process":           {"export async function loadPyodide() { process.exit(3); }", "ended with status 3"},
		"one that lacks what it would import": {"import './pyodide.asm.js';", "pyodide.asm.js"},
	} {
		l := newLab(t, test.module)
		b := pyodide.New(pyodide.Options{Dist: l.dist, CacheDir: t.TempDir()})
		_, err := b.Prepare(l.ctx, guest.Setup{})
		var unavailable *guest.UnavailableError
		if !errors.As(err, &unavailable) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", what, err, test.want)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	empty := t.TempDir()
	for _, dist := range []string{empty, filepath.Join(empty, "none")} {
		_, err := newLabOf(t, dist).tryStart(nil)
		if !errors.Is(err, pyodide.ErrNoDist) && (err == nil || !strings.Contains(err.Error(), "has no pyodide.mjs and no pyodide-lock.json")) {
			t.Errorf("%s: %v", dist, err)
		}
	}
}

func waitsForNothing(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  return { setStdin() {}, async runPythonAsync() { await new Promise(() => {}); } };
}`)
	e := l.do(l.start(nil), "1")
	if e.done.Outcome == spool.TurnOK || *e.done.ExitCode == 0 {
		t.Errorf("done %+v", e.done)
	}
}

func freshProcesses(t *testing.T) {
	l := newLab(t, `
let count = 0;
export async function loadPyodide(options) {
  return { setStdin() {}, async runPythonAsync() { console.log(String(++count)); } };
}`)
	fresh, kept := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Fresh = true }), l.start(nil)
	for i := range 3 {
		if e := l.do(fresh, "1"); e.stdout != "1\n" {
			t.Errorf("a fresh process has seen %q", e.stdout)
		}
		if e := l.do(kept, "1"); e.stdout != fmt.Sprintf("%d\n", i+1) {
			t.Errorf("after %d scripts a kept process has seen %q", i, e.stdout)
		}
	}
}

// A distribution that never loads is given up, with an error that says so.
func TestDistributionThatNeverLoads(t *testing.T) {
	dist := t.TempDir()
	for name, content := range map[string]string{
		"pyodide.mjs":       "setInterval(() => {}, 1000)\nexport async function loadPyodide() { return new Promise(() => {}) }\n",
		"pyodide-lock.json": "{\"packages\":[]}\n",
	} {
		if err := os.WriteFile(filepath.Join(dist, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, noFork := range map[string]bool{"forked": false, "a process each": true} {
		t.Run(name, func(t *testing.T) {
			b := pyodide.New(pyodide.Options{LoadTime: 300 * time.Millisecond, NoFork: noFork})
			defer func() {
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			}()
			_, err := b.Open(t.Context(), guest.Options{
				Setup: guest.Setup{Dist: dist, CacheDir: t.TempDir()},
				FS:    vfs.NewTree(vfs.NewMemory(vfs.NewQuota(0, 0))), Cwd: "/",
			})
			if err == nil || !strings.Contains(err.Error(), "300ms") {
				t.Errorf("it is open, or failed otherwise: %v", err)
			}
		})
	}
}
