//go:build amd64 || arm64

package pyodide_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

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
