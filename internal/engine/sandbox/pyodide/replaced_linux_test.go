//go:build amd64 || arm64

package pyodide_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// lab is a host with a sandbox engine whose distribution is what a test makes
// of it: a directory with a pyodide.mjs of its own.
type lab struct {
	t    *testing.T
	ctx  context.Context
	host *host.Host
	dist string
}

func newLab(t *testing.T, module string) *lab {
	t.Helper()
	dist := t.TempDir()
	for name, content := range map[string]string{"pyodide.mjs": module, "pyodide-lock.json": "{\"packages\":[]}\n"} {
		if err := os.WriteFile(filepath.Join(dist, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return newLabOf(t, dist)
}

func newLabOf(t *testing.T, dist string) *lab {
	t.Helper()
	cache := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	h, err := host.Open(host.Options{Engines: map[string]host.NewEngine{
		python.EngineSandbox: func(string) (engine.Engine, error) {
			return sandbox.New(sandbox.Options{
				CacheDir: cache,
				Backends: map[string]func() (guest.Backend, error){
					pyodide.Name: func() (guest.Backend, error) { return pyodide.New(pyodide.Options{}), nil },
				},
			})
		},
	}})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &lab{t, ctx, h, dist}
}

func (l *lab) tryStart(change func(*spool.Spec, *python.SandboxConfig)) (*spool.Run, error) {
	spec := spool.Spec{Engine: python.EngineSandbox, Stdin: true}
	c := python.SandboxConfig{Backend: pyodide.Name, Dist: l.dist}
	if change != nil {
		change(&spec, &c)
	}
	var err error
	if spec.Config, err = json.Marshal(c); err != nil {
		return nil, err
	}
	return spool.Start(l.ctx, l.host, spec)
}

func (l *lab) start(change func(*spool.Spec, *python.SandboxConfig)) *spool.Run {
	l.t.Helper()
	run, err := l.tryStart(change)
	if err != nil {
		l.t.Fatalf("start: %v", err)
	}
	return run
}

func (l *lab) exec(run *spool.Run, cell spool.Cell) *spool.Turn {
	l.t.Helper()
	turn, err := run.Exec(l.ctx, "", cell)
	if err != nil {
		l.t.Fatalf("exec: %v", err)
	}
	return turn
}

// ended is what came of a turn.
type ended struct {
	stdout, stderr string
	events         []spool.Event
	done           spool.Done
}

// follow collects the events of a turn until one is the last that is wanted,
// or ends it.
func (l *lab) follow(turn *spool.Turn, last func(*spool.Event, *ended) bool) ended {
	l.t.Helper()
	var out ended
	for e, err := range turn.Events(l.ctx) {
		if err != nil {
			l.t.Fatal(err)
		}
		out.events = append(out.events, e)
		if e.Kind == spool.KindOutput && e.Stream == spool.Stdout {
			out.stdout += string(e.Bytes)
		} else if e.Kind == spool.KindOutput {
			out.stderr += string(e.Bytes)
		} else if e.Kind == spool.KindDone {
			if err := json.Unmarshal(e.Data, &out.done); err != nil {
				l.t.Fatal(err)
			}
			return out
		}
		if last != nil && last(&e, &out) {
			return out
		}
	}
	l.t.Fatal("the log ends before the turn does")
	return out
}

func (l *lab) do(run *spool.Run, code string) ended {
	l.t.Helper()
	return l.follow(l.exec(run, spool.Cell{Code: code}), nil)
}

// echo is a replacement that prints its input.
const echo = `
export async function loadPyodide(options) {
  return {
    setStdin(_stdin) {},
    async runPythonAsync(code) {
      console.log('stdout:' + code);
      console.error('stderr:' + options.indexURL);
    },
  };
}`

func TestReplacementDistribution(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"contexts_preserve_configuration", contextsPreserveConfiguration},
		{"runs_code_and_streams_stdio", runsCodeAndStreamsStdio},
		{"wait_bounds_output_buffers", waitBoundsOutputBuffers},
		{"emits_stdout_before_exit", emitsStdoutBeforeExit},
		{"reports_prewarm_and_startup_metrics", reportsMetrics},
		{"keeps_streaming_stdin_sessions_alive_until_closed", keepsStdinAlive},
		{"surfaces_rpc_requests_and_resumes_after_responses", surfacesRPC},
		{"wait_timeout_cleans_up_hanging_child", waitTimeoutCleansUp},
		{"uses_configured_default_timeout", usesDefaultTimeout},
		{"rpc_times_out_when_host_never_responds", rpcTimesOut},
		{"surfaces_runtime_stderr", surfacesStderr},
		{"kill_stops_inflight_and_emits_exit", killStopsInflight},
		{"blocks_network_during_init", blocksNetwork},
		{"what_is_printed_while_loading_is_the_scripts", earlyOutput},
		{"a_distribution_that_cannot_be_loaded_says_why", cannotLoad},
		{"a_script_that_waits_for_nothing_ends", waitsForNothing},
		{"each_script_of_a_fresh_context_has_its_own_process", freshProcesses},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

func contextsPreserveConfiguration(t *testing.T) {
	l := newLab(t, echo)
	other := t.TempDir()
	for name, content := range map[string]string{
		"pyodide.mjs":       strings.ReplaceAll(echo, "stdout:", "other:"),
		"pyodide-lock.json": `{"packages":{}}`,
	} {
		if err := os.WriteFile(filepath.Join(other, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	a, b := l.start(nil), l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Dist = other })
	for range 2 {
		if e := l.do(a, "1"); e.stdout != "stdout:1\n" {
			t.Errorf("the first printed %q", e.stdout)
		}
		if e := l.do(b, "2"); e.stdout != "other:2\n" {
			t.Errorf("the second printed %q", e.stdout)
		}
	}
	if a.ID() == b.ID() {
		t.Error("two contexts have one id")
	}
}

func runsCodeAndStreamsStdio(t *testing.T) {
	l := newLab(t, echo)
	e := l.do(l.start(nil), "print('hello')")
	if e.stdout != "stdout:print('hello')\n" || e.done.Outcome != spool.TurnOK || *e.done.ExitCode != 0 {
		t.Errorf("stdout %q, done %+v", e.stdout, e.done)
	}
	if e.stderr != "stderr:/pyodide/\n" {
		t.Errorf("stderr %q: not under a path of the guest", e.stderr)
	}
}

func waitBoundsOutputBuffers(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  return { setStdin() {}, async runPythonAsync() { console.log('x'.repeat(79)); console.error('y'.repeat(79)); } };
}`)
	e := l.do(l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.OutputBytes = 32 }), "ignored")
	if e.stdout != strings.Repeat("x", 32) || e.stderr != strings.Repeat("y", 32) || *e.done.ExitCode != 0 {
		t.Errorf("stdout %q, stderr %q, done %+v", e.stdout, e.stderr, e.done)
	}
	if !slices.ContainsFunc(e.events, func(e spool.Event) bool { return e.Kind == spool.KindTruncated }) {
		t.Error("nothing says that output was dropped")
	}
}

func emitsStdoutBeforeExit(t *testing.T) {
	l := newLab(t, echo)
	e := l.do(l.start(nil), "streamed")
	out := slices.IndexFunc(e.events, func(e spool.Event) bool { return e.Kind == spool.KindOutput })
	if out < 0 || e.events[len(e.events)-1].Kind != spool.KindDone {
		t.Errorf("events %v", e.events)
	}
}

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
		if *m[1].InterpreterMs < slowLoad.Milliseconds() || *m[1].PackageLoadMs != 0 || *m[1].PackageCount != 0 {
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

func keepsStdinAlive(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  let stdin = null;
  return {
    setStdin(config) { stdin = config; },
    async runPythonAsync(code) {
      console.log('reading');
      const decoder = new TextDecoder(), chunk = new Uint8Array(8192);
      for (let n; (n = stdin.read(chunk)) > 0;) console.log('stdin:' + decoder.decode(chunk.subarray(0, n)));
      console.log('code:' + code);
    },
  };
}`)
	run := l.start(nil)
	turn := l.exec(run, spool.Cell{Code: "streaming"})
	has := func(text string) func(*spool.Event, *ended) bool {
		return func(_ *spool.Event, e *ended) bool { return strings.Contains(e.stdout, text) }
	}
	l.follow(turn, has("reading"))
	if _, err := run.Send(l.ctx, spool.Input{Kind: spool.InputStdin, Bytes: []byte("still-open")}); err != nil {
		t.Fatal(err)
	}
	l.follow(turn, has("stdin:still-open\n"))
	if _, err := run.Send(l.ctx, spool.Input{Kind: spool.InputEOF}); err != nil {
		t.Fatal(err)
	}
	if e := l.follow(turn, nil); !strings.HasSuffix(e.stdout, "code:streaming\n") || e.done.Outcome != spool.TurnOK {
		t.Errorf("stdout %q, done %+v", e.stdout, e.done)
	}
}

func surfacesRPC(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  return {
    setStdin() {},
    async runPythonAsync(code) {
      const rpc = globalThis.spoolHost;
      await rpc.fsMkdir('/workspace', { recursive: true });
      await rpc.fsWrite('/workspace/note.txt', Buffer.from('hello from rpc').toString('base64'));
      const content = Buffer.from(await rpc.fsRead('/workspace/note.txt'), 'base64').toString();
      const stat = await rpc.fsStat('/workspace/note.txt');
      const entries = rpc.fsReaddirSync('/workspace');
      console.log(JSON.stringify({ code, content, stat, entries }));
    },
  };
}`)
	run := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Offer = []string{"fs.*"} })
	turn := l.exec(run, spool.Cell{Code: "rpc"})
	steps := []struct{ kind, data, answer string }{
		{"fs.mkdir", `{"path":"/workspace","recursive":true}`, `{}`},
		{"fs.write", `{"path":"/workspace/note.txt","content_base64":"aGVsbG8gZnJvbSBycGM="}`, `{}`},
		{"fs.read", `{"path":"/workspace/note.txt"}`, `{"content_base64":"aGVsbG8gZnJvbSBycGM="}`},
		{"fs.stat", `{"path":"/workspace/note.txt"}`, `{"stat":{"mode":33188,"size":14,"is_directory":false,"is_symbolic_link":false}}`},
		{"fs.readdir", `{"path":"/workspace"}`, `{"entries":["note.txt"]}`},
	}
	e := l.follow(turn, func(e *spool.Event, _ *ended) bool {
		if e.Kind != spool.KindAsk {
			return false
		}
		var a spool.Ask
		if err := json.Unmarshal(e.Data, &a); err != nil || len(steps) == 0 {
			t.Fatalf("asked %s, %v", e.Data, err)
		}
		step := steps[0]
		steps = steps[1:]
		if a.Kind != step.kind || !sameJSON(a.Data, step.data) {
			t.Errorf("asked %s %s, want %s %s", a.Kind, a.Data, step.kind, step.data)
		}
		if err := run.Answer(l.ctx, spool.Answer{Ask: e.Seq, Data: json.RawMessage(step.answer)}, false); err != nil {
			t.Fatal(err)
		}
		return false
	})
	want := `{"code":"rpc","content":"hello from rpc","stat":{"mode":33188,"size":14,"isDirectory":false,"isSymbolicLink":false},"entries":["note.txt"]}` + "\n"
	if e.stdout != want || len(steps) > 0 {
		t.Errorf("stdout %q, stderr %q, left %v", e.stdout, e.stderr, steps)
	}
}

func sameJSON(a []byte, b string) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

// hang is a replacement that never gets done.
const hang = `
export async function loadPyodide(options) {
  return {
    setStdin() {},
    async runPythonAsync(code) {
      console.log('ready ' + process.pid);
      if (code === 'busy') for (;;) {}
      await new Promise(() => setInterval(() => {}, 1000));
    },
  };
}`

func waitTimeoutCleansUp(t *testing.T) {
	l := newLab(t, hang)
	run := l.start(nil)
	for _, code := range []string{"wait", "busy"} {
		turn := l.exec(run, spool.Cell{Code: code, TimeoutMs: 1500})
		child := l.child(l.follow(turn, isReady))
		e := l.follow(turn, nil)
		l.gone(child)
		if e.done.Outcome != spool.TurnTimeout || e.done.EndedBy != "timeout" || e.done.Error != "timed out after 1500ms" || e.done.LimitMs != 1500 {
			t.Errorf("%s: done %+v", code, e.done)
		}
	}
}

func usesDefaultTimeout(t *testing.T) {
	l := newLab(t, hang)
	run := l.start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Limits.WallMs = 250 })
	if e := l.do(run, "wait"); e.done.EndedBy != "timeout" || e.done.LimitMs != 250 {
		t.Errorf("done %+v", e.done)
	}
}

func rpcTimesOut(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  return { setStdin() {}, async runPythonAsync() { globalThis.spoolHost.fsReadSync('/workspace/never.txt'); } };
}`)
	run := l.start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Offer, c.Limits.AskMs = []string{"fs.read"}, 50
	})
	for range 2 { // it ends the script and not the engine
		e := l.do(run, "read")
		if *e.done.ExitCode != 1 || !strings.Contains(e.stderr, "timed out after 50ms") {
			t.Errorf("done %+v, stderr %q", e.done, e.stderr)
		}
		var a spool.Ask
		for _, ev := range e.events {
			if ev.Kind == spool.KindAsk {
				if err := json.Unmarshal(ev.Data, &a); err != nil {
					t.Fatal(err)
				}
			}
		}
		if a.Kind != "fs.read" || !sameJSON(a.Data, `{"path":"/workspace/never.txt"}`) {
			t.Errorf("asked %s %s", a.Kind, a.Data)
		}
	}
}

func surfacesStderr(t *testing.T) {
	l := newLab(t, `
export async function loadPyodide(options) {
  return { setStdin() {}, async runPythonAsync() { console.error('first'); throw new Error('boom from the runtime'); } };
}`)
	e := l.do(l.start(nil), "raise")
	if *e.done.ExitCode != 1 || e.done.Outcome != spool.TurnError || !strings.HasPrefix(e.stderr, "first\n") || !strings.Contains(e.stderr, "boom from the runtime") {
		t.Errorf("done %+v, stderr %q", e.done, e.stderr)
	}
}

func killStopsInflight(t *testing.T) {
	l := newLab(t, hang)
	run := l.start(nil)
	turn := l.exec(run, spool.Cell{Code: "busy"})
	child := l.child(l.follow(turn, isReady))
	if err := run.Kill(l.ctx); err != nil {
		t.Fatal(err)
	}
	o, err := run.Wait(l.ctx)
	if err != nil || o.Kind != spool.Exited || o.Code != guest.ExitKilled {
		t.Errorf("the run ended %v, %v", o, err)
	}
	if e := l.follow(turn, nil); e.done.EndedBy != "kill" {
		t.Errorf("done %+v", e.done)
	}
	l.gone(child)
}

// isReady ends the following of a turn of hang once it runs.
func isReady(_ *spool.Event, e *ended) bool { return strings.HasSuffix(e.stdout, "\n") }

// child returns the pid, on this machine, of the process that reported that it
// is ready with its pid in its namespace.
func (l *lab) child(e ended) int {
	l.t.Helper()
	inside, ok := strings.CutPrefix(strings.TrimSpace(e.stdout), "ready ")
	if !ok {
		l.t.Fatalf("it said %q", e.stdout)
	}
	found := 0
	for pid, parents := range processes(l.t) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // it has ended
		}
		_, namespaced, _ := strings.Cut(string(status), "\nNSpid:")
		namespaced, _, _ = strings.Cut(namespaced, "\n")
		numbers := strings.Fields(namespaced)
		if len(numbers) < 2 || numbers[len(numbers)-1] != inside || !slices.ContainsFunc(parents, l.supervises) {
			continue
		}
		if found != 0 {
			l.t.Fatalf("both %d and %d are the child", found, pid)
		}
		found = pid
	}
	if found == 0 {
		l.t.Fatalf("no process is %s inside", inside)
	}
	return found
}

// supervises reports whether a process belongs to the distribution of this test.
func (l *lab) supervises(pid int) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(args), l.dist)
}

// processes returns the parents of each process of this machine.
func processes(t *testing.T) map[int][]int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parent := make(map[int]int)
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		_, after, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(after); len(fields) > 1 {
			parent[pid], _ = strconv.Atoi(fields[1])
		}
	}
	all := make(map[int][]int)
	for pid := range parent {
		for p := parent[pid]; p != 0; p = parent[p] {
			all[pid] = append(all[pid], p)
		}
	}
	return all
}

// gone waits until a process is gone.
func (l *lab) gone(pid int) {
	l.t.Helper()
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") || strings.Contains(string(stat), ") X ") {
			return
		}
		if l.ctx.Err() != nil {
			l.t.Fatalf("process %d lives", pid)
		}
		time.Sleep(time.Millisecond)
	}
}

func blocksNetwork(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var reached sync.WaitGroup
	connected := false
	reached.Go(func() {
		if c, err := listener.Accept(); err == nil {
			connected = true
			c.Close()
		}
	})
	l := newLab(t, fmt.Sprintf(`
import net from 'node:net';
import dgram from 'node:dgram';
const port = %d;
const failure = (f) => f().then(() => 'reached', (e) => (e.code ?? e.cause?.code ?? e.message));
const tcp = () => new Promise((resolve, reject) => {
  const s = net.connect(port, '127.0.0.1', resolve);
  s.on('error', reject);
});
const udp = () => new Promise((resolve, reject) => {
  const s = dgram.createSocket('udp4');
  s.on('error', reject);
  s.send('x', port, '127.0.0.1', (e) => (e ? reject(e) : resolve()));
});
export async function loadPyodide(options) {
  const during = [await failure(() => fetch('http://127.0.0.1:' + port)), await failure(tcp), await failure(udp)];
  return {
    setStdin() {},
    async runPythonAsync() {
      let later;
      try { await fetch('https://example.org'); } catch (e) { later = e.message; }
      console.log(JSON.stringify([during, later]));
    },
  };
}`, listener.Addr().(*net.TCPAddr).Port))
	e := l.do(l.start(nil), "1")
	listener.Close()
	reached.Wait()
	if *e.done.ExitCode != 0 || e.done.Outcome != spool.TurnOK || e.stderr != "" {
		t.Errorf("done %+v, stderr %q", e.done, e.stderr)
	}
	if connected || strings.Contains(e.stdout, "reached") || !strings.Contains(e.stdout, "network access") || !strings.Contains(e.stdout, "ERR_ACCESS_DENIED") {
		t.Errorf("reached %v, stdout %q, stderr %q", connected, e.stdout, e.stderr)
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
