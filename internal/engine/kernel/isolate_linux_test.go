package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/python"
)

// openMode returns an engine whose trees are held in that way.
func openMode(t *testing.T, mode launch.TreeMode) *Engine {
	t.Helper()
	e, err := New(Options{Tree: mode})
	if err != nil {
		skiptest.Missing(t, "%v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// isolated returns the spec of a run in a fresh directory.
func isolated(t *testing.T, i spool.Isolation) spool.Spec {
	return spool.Spec{Cwd: t.TempDir(), Isolation: &i}
}

// startIsolated starts an isolated run, or skips the test on a machine that cannot.
func startIsolated(t *testing.T, e *Engine, cfg python.KernelConfig, spec spool.Spec) *testRun {
	t.Helper()
	cfg.Interpreter = testPython(t)
	r, err := tryStart(t, e, cfg, spec)
	var refusal *isolate.Refusal
	if errors.As(err, &refusal) {
		skiptest.Missing(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// isolating starts every run of an engine with an isolation.
type isolating struct {
	*Engine
	cwd string
}

func (e isolating) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	if spec.Cwd == "" {
		spec.Cwd = e.cwd
	}
	spec.Isolation = &spool.Isolation{Profile: "workspace-write", Writable: []string{"/tmp", e.cwd}}
	return e.Engine.Start(ctx, spec, out)
}

// TestIsolatedEngine runs the suite of all engines with isolated interpreters.
func TestIsolatedEngine(t *testing.T) {
	e := open(t)
	startIsolated(t, e, python.KernelConfig{}, isolated(t, spool.Isolation{Profile: "workspace-write"}))
	enginetest.Run(t, suite(isolating{e, t.TempDir()}))
}

// An isolated interpreter writes to its working directory and nowhere else, and is
// interrupted, restarted and killed as any other.
func TestIsolatedInterpreter(t *testing.T) {
	for _, mode := range []launch.TreeMode{launch.TreeAuto, launch.TreeWalk} {
		t.Run("tree="+string(mode), func(t *testing.T) {
			e := openMode(t, mode)
			spec := isolated(t, spool.Isolation{Profile: "workspace-write", Protected: []string{".git"}})
			r := startIsolated(t, e, python.KernelConfig{Zygote: python.ZygoteWait, AgainMs: never.AgainMs}, spec)
			has := r.Session.(engine.Isolated).Isolation()
			if has == nil || has.Mechanism != isolate.Namespaces || !slices.Contains(has.Guarantees, "W") || !slices.Contains(has.Guarantees, "K") || has.Profile != "workspace-write" {
				t.Errorf("isolation %+v", has)
			}
			outside := filepath.Join(t.TempDir(), "file")
			writes := func() {
				t.Helper()
				r.ok("open('inside', 'w').write('x')")
				for _, file := range []string{outside, ".git/config", "/spool-isolate-test"} {
					if res := r.run("open('" + file + "', 'w')"); res.Outcome != spool.TurnError || res.exception.Name != "OSError" && res.exception.Name != "FileNotFoundError" {
						t.Errorf("write %s: %+v", file, res)
					}
				}
				if _, err := os.Stat(outside); err == nil {
					t.Error("it wrote outside")
				}
				// What it starts is in the sandbox, too.
				if res := r.run("import subprocess\nsubprocess.run(['touch', '/spool-isolate-test'], check=True)"); res.exception.Name != "CalledProcessError" {
					t.Errorf("a child process: %+v", res)
				}
			}
			writes()
			if _, err := os.Stat(filepath.Join(spec.Cwd, "inside")); err != nil {
				t.Error(err)
			}
			r.ok("x = 1")
			turn := r.cell("import time\nprint('go', flush=True)\ntime.sleep(3600)")
			r.log.Until(t, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
			r.control(spool.Control{Op: spool.ControlInterrupt})
			if d := r.done(turn); d.Outcome != spool.TurnInterrupted {
				t.Errorf("interrupt: %+v", d)
			}
			r.want("x", "1")
			r.control(spool.Control{Op: spool.ControlRestart})
			r.log.Until(t, "restart", func(e spool.Event) bool {
				return e.Kind == spool.KindNotice && enginetest.Data[spool.Notice](t, e).Code == NoticeRestarted
			})
			r.want("'x' in globals()", "False")
			writes()
			if res := r.run("import os\nos.kill(os.getpid(), 9)"); res.Outcome != spool.TurnCrashed {
				t.Errorf("crash: %+v", res)
			}
			writes()
			// A daemon of the interpreter ends with the run.
			r.ok("subprocess.Popen(['sh', '-c', 'sleep 1000'], start_new_session=True, stdin=subprocess.DEVNULL);")
			r.control(spool.Control{Op: spool.ControlKill})
			if got := r.Wait(); got.Signal != "SIGKILL" {
				t.Errorf("outcome %v", got)
			}
		})
	}
}

// A memory limit of the config holds in a sandbox, too, and is named.
func TestIsolatedMemoryLimit(t *testing.T) {
	e := open(t)
	if err := e.launcher.TryLimits(128<<20, 0); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	r := startIsolated(t, e, python.KernelConfig{MemoryBytes: 128 << 20}, isolated(t, spool.Isolation{Profile: "read-only"}))
	res := r.run("import mmap\nm = mmap.mmap(-1, 512 << 20, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)\nfor i in range(0, len(m), 4096): m[i] = 1")
	if res.Outcome != spool.TurnCrashed || res.ErrorClass != ClassOOM || !strings.Contains(res.Error, "memory") {
		t.Errorf("%+v", res.Done)
	}
	r.want("1 + 1", "2")
}

// What cannot be had is refused, and so are copies of isolated interpreters.
func TestIsolationOfInterpretersIsRefused(t *testing.T) {
	e := open(t)
	cfg := python.KernelConfig{Interpreter: testPython(t)}
	refused := func(cfg python.KernelConfig, i spool.Isolation, reason, text string) {
		t.Helper()
		_, err := tryStart(t, e, cfg, isolated(t, i))
		var se *spool.StartError
		if !errors.As(err, &se) || se.Reason != reason || !strings.Contains(err.Error(), text) {
			t.Errorf("%+v: %v, want %s %q", i, err, reason, text)
		}
	}
	refused(cfg, spool.Isolation{Profile: "strict"}, engine.StartUnsupported, `isolation_unavailable: profile "strict" needs`)
	refused(cfg, spool.Isolation{Profile: "readonly"}, engine.StartInvalid, "read-only")
	refused(cfg, spool.Isolation{Profile: "none", Waive: []string{"W"}}, engine.StartInvalid, "waive")

	spec := isolated(t, spool.Isolation{Profile: "read-only"})
	spec.ID = "original"
	startIsolated(t, e, cfg, spec)
	cfg.Fork = "original"
	if _, err := tryStart(t, e, cfg); err == nil || !strings.Contains(err.Error(), "it is isolated") {
		t.Errorf("fork of an isolated run: %v", err)
	}
	refused(cfg, spool.Isolation{Profile: "read-only"}, engine.StartInvalid, "cannot be isolated")
}

// An interpreter with net-allow reaches the hosts that are named, and the log tells of
// them.
func TestIsolatedInterpreterWithNetwork(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }))
	defer server.Close()
	e := open(t)
	r := startIsolated(t, e, python.KernelConfig{}, isolated(t, spool.Isolation{Profile: "net-allow", Hosts: []string{server.Listener.Addr().String()}}))
	r.ok("import urllib.request, urllib.error")
	r.want("urllib.request.urlopen('"+server.URL+"').read()", "b'hello'")
	if res := r.run("urllib.request.urlopen('http://example.org/')"); res.exception.Name != "HTTPError" {
		t.Errorf("another host: %+v", res)
	}
	r.control(spool.Control{Op: spool.ControlKill})
	r.Wait()
	notices := r.log.Notices(t)
	for code, want := range map[string]int{isolate.NoticeHost: 2, isolate.NoticeTraffic: 1} {
		if n := strings.Count(strings.Join(notices, " "), code); n != want {
			t.Errorf("%d notices %s: %q", n, code, notices)
		}
	}
}

// getter defines a function that requests a URL through the proxy.
const getter = `
import os, urllib.request, urllib.error
for name in ('no_proxy', 'NO_PROXY'): os.environ.pop(name, None)
def get(url):
    try: return urllib.request.urlopen(url).status
    except urllib.error.HTTPError as err: return err.code`

// A cell asks about hosts that no rule names.
func TestInterpreterAsksAboutHosts(t *testing.T) {
	e := open(t)
	enginetest.AskHosts(t, func(t *testing.T, i spool.Isolation) *enginetest.HostRun {
		r := startIsolated(t, e, python.KernelConfig{}, isolated(t, i))
		r.ok(getter)
		return &enginetest.HostRun{Session: r.Session, Log: r.log, Turns: true, Get: func(_ testing.TB, url string) func() string {
			turn := r.cell(fmt.Sprintf("get(%q)", url))
			return func() string { return r.turnEvents(turn).result }
		}}
	})
}

// An ask ends with its cell, and is put again by the next one. An answer holds for the
// interpreters that follow, too.
func TestAskAboutAHostEndsWithItsCell(t *testing.T) {
	e := open(t)
	r := startIsolated(t, e, python.KernelConfig{}, isolated(t, spool.Isolation{Profile: "net-allow", AskHosts: true}))
	r.ok(getter)
	const code = "get('http://again.example/')"
	isAsk := func(e spool.Event) bool { return e.Kind == spool.KindAsk }
	turn := r.cell(code)
	first := r.log.Until(t, "an ask", isAsk)
	r.control(spool.Control{Op: spool.ControlInterrupt})
	if d := r.done(turn); d.Outcome != spool.TurnInterrupted || first.Turn != turn {
		t.Errorf("turn %d asked, turn %d: %+v", first.Turn, turn, d)
	}
	var second spool.Event
	for !isAsk(second) { // the proxy may still refuse for the first ask
		turn = r.cell(code)
		second = r.log.Until(t, "another ask", func(e spool.Event) bool {
			return e.Seq > first.Seq && (isAsk(e) || e.Kind == spool.KindDone && e.Turn == turn)
		})
	}
	r.send(spool.InputAnswer, spool.Answer{Ask: second.Seq, Data: []byte(`"deny"`)})
	if got := r.turnEvents(turn); got.result != "403" || second.Turn != turn {
		t.Errorf("%+v; turn %d asked", got, second.Turn)
	}
	r.control(spool.Control{Op: spool.ControlRestart})
	r.log.Until(t, "restart", func(e spool.Event) bool {
		return e.Kind == spool.KindNotice && enginetest.Data[spool.Notice](t, e).Code == NoticeRestarted
	})
	r.ok(getter)
	r.want(code, "403")
	for _, e := range r.log.All(t) {
		if isAsk(e) && e.Seq > second.Seq {
			t.Errorf("it asks again: %s", e.Data)
		}
	}
}
