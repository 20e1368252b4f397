package mcpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/wire/mcpapi"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role { // the first process of a sandbox
		os.Exit(isolate.Work(os.Args[2:]))
	}
	leaktest.Main(m)
}

// versions are the revisions of the protocol that clients speak.
var versions = []string{"2026-07-28", "2025-11-25"}

// openHost opens a host with processes and kernels.
func openHost(t *testing.T) *host.Host {
	t.Helper()
	usePython(t)
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
		python.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// usePython has kernels use the interpreter of tests, which starts without a shim.
func usePython(t *testing.T) {
	t.Helper()
	t.Setenv("VIRTUAL_ENV", filepath.Dir(filepath.Dir(pytest.Python(t))))
}

// client is a client of a server.
type client struct {
	*mcp.ClientSession
	t *testing.T
}

// connect connects a client with a server in this process.
func connect(t *testing.T, o mcpapi.Options, version string, options *mcp.ClientOptions) *client {
	t.Helper()
	if o.Cwd == "" {
		o.Cwd = t.TempDir()
	}
	o.Env = &spool.EnvPolicy{Inherit: "core"}
	ours, theirs := mcp.NewInMemoryTransports()
	server, err := mcpapi.New(o).Connect(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(), theirs, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		_ = server.Wait()
	})
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("the revision is %s, want %s", got, version)
	}
	return &client{session, t}
}

// args are the arguments of a tool.
type args map[string]any

// call calls a tool and checks the form of its result.
func (c *client) call(name string, a args) (mcpapi.RunView, string) {
	c.t.Helper()
	result, err := c.CallTool(c.t.Context(), &mcp.CallToolParams{Name: name, Arguments: a})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.viewOf(name, result)
}

func (c *client) viewOf(name string, result *mcp.CallToolResult) (mcpapi.RunView, string) {
	c.t.Helper()
	text := textOf(result)
	if result.IsError {
		c.t.Fatalf("%s: %s", name, text)
	}
	data, err := json.Marshal(result.StructuredContent)
	if err != nil {
		c.t.Fatal(err)
	}
	var v mcpapi.RunView
	if err := json.Unmarshal(data, &v); err != nil {
		c.t.Fatal(err)
	}
	for tool, err := range c.Tools(c.t.Context(), nil) {
		if err != nil {
			c.t.Fatal(err)
		}
		if tool.Name == name && tool.OutputSchema != nil {
			check(c.t, tool.OutputSchema, data)
		}
	}
	return v, text
}

// check checks a value against a schema.
func check(t *testing.T, schema any, data []byte) {
	t.Helper()
	text, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s is not what the schema says: %v", data, err)
	}
}

// fails calls a tool that must refuse.
func (c *client) fails(name string, a args) string {
	c.t.Helper()
	result, err := c.CallTool(c.t.Context(), &mcp.CallToolParams{Name: name, Arguments: a})
	if err != nil {
		c.t.Fatal(err)
	}
	if !result.IsError {
		c.t.Errorf("%s with %v is no error: %s", name, a, textOf(result))
	}
	return textOf(result)
}

// textOf is what a model reads.
func textOf(r *mcp.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		if text, ok := c.(*mcp.TextContent); ok {
			all = append(all, text.Text)
		}
	}
	return strings.Join(all, "\n")
}

// TestTools calls every tool with clients of both revisions.
func TestTools(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			c := connect(t, mcpapi.Options{Backend: openHost(t)}, version, nil)
			v, text := c.call("run_command", args{"command": "echo out; echo err >&2; exit 3", "wait_ms": 50_000})
			if v.State != spool.StateClosed || v.Outcome == nil || v.Outcome.Code != 3 || v.Why != "end" || !strings.Contains(v.Text, "out\n") || !strings.Contains(v.Text, "err\n") {
				t.Errorf("run_command returned %+v", v)
			}
			if !strings.HasPrefix(text, "["+string(v.Run)+" exited 3 after ") || !strings.Contains(text, fmt.Sprintf(", next %d]\n", v.Next)) {
				t.Errorf("the text is %q", text)
			}
			if again, _ := c.call("read_run", args{"run": v.Run, "after": v.Next}); again.Text != "" || again.Next != v.Next {
				t.Errorf("after the end there is %+v", again)
			}
			if again, _ := c.call("read_run", args{"run": v.Run[:6]}); !strings.Contains(again.Text, "out\n") {
				t.Errorf("by its prefix the run has %q", again.Text)
			}

			v, _ = c.call("run_command", args{"argv": []string{"sh", "-c", `read x; echo "got $x"; read y; echo "and $y"; sleep 1000`}, "tty": true, "name": "typed", "until": "quiet", "wait_ms": 50_000})
			if v.State != spool.StateRunning || v.Why != "quiet" {
				t.Errorf("a command that waits for input is %+v", v)
			}
			v, _ = c.call("send_input", args{"run": "typed", "text": "hello", "keys": []string{"enter"}, "until": "match", "match": "^got hel+o$", "wait_ms": 50_000})
			if v.Why != "match" || !strings.Contains(v.Text, "got hello") {
				t.Errorf("after the first line: %+v", v)
			}
			first := v.Next
			c.call("send_input", args{"run": "typed", "text": "more\n", "wait_ms": 0})
			v, _ = c.call("read_run", args{"run": "typed", "after": first, "until": "match", "match": "and more", "wait_ms": 50_000})
			if v.Why != "match" || strings.Contains(v.Text, "got hello") {
				t.Errorf("after the second line: %+v", v)
			}
			if v, _ = c.call("read_run", args{"run": "typed", "view": "screen"}); !strings.Contains(v.Text, "got hello\nmore\nand more") {
				t.Errorf("the screen is %q", v.Text)
			}
			if v, _ = c.call("stop_run", args{"run": "typed", "how": "kill", "wait_ms": 50_000}); v.Outcome == nil || v.Outcome.Signal != "SIGKILL" {
				t.Errorf("a run that was killed is %+v", v)
			}
			result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_runs", Arguments: args{"name": "typed"}})
			if err != nil || !strings.Contains(textOf(result), "typed exited 137 (SIGKILL)") {
				t.Errorf("the list is %q, %v", textOf(result), err)
			}

			v, _ = c.call("python", args{"code": "x = 41\nprint('hi')", "wait_ms": 50_000})
			if v.Text != "hi\n" || v.Done == nil || v.Done.Outcome != spool.TurnOK || v.Why != "turn" {
				t.Errorf("the first cell returned %+v", v)
			}
			if v, _ = c.call("python", args{"code": "x + 1", "wait_ms": 50_000}); strings.TrimSpace(v.Text) != "42" {
				t.Errorf("the second cell returned %+v", v)
			}
			if v, text = c.call("python", args{"code": "1/0", "wait_ms": 50_000}); v.Done.Outcome != spool.TurnError || !strings.Contains(text, "ZeroDivisionError") {
				t.Errorf("a cell that raises returned %q", text)
			}
		})
	}
}

// TestSchemas checks what is listed: order, size, and that each schema stands alone.
func TestSchemas(t *testing.T) {
	b := openHost(t)
	names := func(o mcpapi.Options) (names []string, text string) {
		o.Backend = b
		c := connect(t, o, versions[0], nil)
		list, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if list.TTLMs != 300_000 || list.CacheScope != "private" {
			t.Errorf("the list may be kept for %d ms, %s", list.TTLMs, list.CacheScope)
		}
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
			input, err := json.Marshal(tool.InputSchema)
			if err != nil {
				t.Fatal(err)
			}
			text += tool.Name + tool.Description + string(input)
			if strings.Contains(string(input), "$ref") || !strings.Contains(string(input), `"additionalProperties":false`) {
				t.Errorf("the schema of %s is %s", tool.Name, input)
			}
			var schema struct {
				Properties map[string]struct{ Description string }
			}
			if err := json.Unmarshal(input, &schema); err != nil {
				t.Fatal(err)
			}
			for name, p := range schema.Properties {
				if words := len(strings.Fields(p.Description)); words == 0 || words > 15 {
					t.Errorf("%s of %s is described by %d words", name, tool.Name, words)
				}
			}
		}
		return names, text
	}
	all, text := names(mcpapi.Options{AllowAnswer: true})
	want := []string{"answer", "ask_agent", "list_runs", "python", "read_run", "run_command", "send_input", "stop_run"}
	if !slices.Equal(all, want) {
		t.Errorf("the tools are %q, want %q", all, want)
	}
	// A tokenizer needs about a token for four characters of such text.
	if n := len(text) / 4; n > 2500 {
		t.Errorf("the descriptions take %d tokens", n)
	}
	if some, _ := names(mcpapi.Options{}); slices.Contains(some, "answer") {
		t.Errorf("without --allow-answer the tools are %q", some)
	}
	for scope, want := range map[access.Scope][]string{
		access.Read:  {"list_runs", "read_run"},
		access.Start: {},
	} {
		if some, _ := names(mcpapi.Options{Subject: &access.Subject{Name: "s", Scopes: access.Scopes{scope}}}); !slices.Equal(some, want) && len(some)+len(want) > 0 {
			t.Errorf("with %s the tools are %q, want %q", scope, some, want)
		}
	}
}

// TestBudget reads long logs in few characters.
func TestBudget(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	const script = `i=0; while [ $i -lt 5000 ]; do echo "line $i of many: äöü 日本語"; i=$((i+1)); done; echo "Error: the worst" >&2; i=0; while [ $i -lt 300 ]; do echo "after $i"; i=$((i+1)); done; exit 1`
	v, _ := c.call("run_command", args{"command": script, "wait_ms": 50_000})
	for _, budget := range []int{100, 250, 1000, 8000, 100_000} {
		for _, view := range []string{"tail", "head", "head_tail", "errors", "transcript"} {
			got, text := c.call("read_run", args{"run": v.Run, "view": view, "budget": budget})
			if n := len([]rune(got.Text)); n > budget {
				t.Errorf("%s within %d has %d characters", view, budget, n)
			}
			if !strings.Contains(text, "exited 1") {
				t.Errorf("%s within %d does not tell that the run failed: %s", view, budget, text)
			}
			if (view == "errors" || view == "head_tail" || view == "tail") && budget >= 1000 && !strings.Contains(got.Text, "Error: the worst") {
				t.Errorf("%s within %d does not tell why the run failed: %s", view, budget, got.Text)
			}
			if view == "tail" && budget >= 1000 && !strings.Contains(got.Text, "after 299") {
				t.Errorf("the tail within %d is %s", budget, got.Text)
			}
			if view == "head" && (!strings.HasPrefix(got.Text, "line 0 of") && budget >= 250 || got.Next >= v.Next && got.Omitted != nil) {
				t.Errorf("the head within %d is %+v", budget, got)
			}
			if view == "tail" && got.Omitted == nil {
				t.Errorf("%s within %d leaves nothing out", view, budget)
			}
		}
	}
	// Every line is shown or counted.
	got, _ := c.call("read_run", args{"run": v.Run, "view": "tail", "budget": 2000})
	if shown := int64(strings.Count(got.Text, "after ")); got.Omitted == nil || got.Omitted.Lines+shown < 5300 {
		t.Errorf("%d lines are shown and %+v left out", shown, got.Omitted)
	}
	// Matching lines, with numbers and lines around them.
	got, _ = c.call("read_run", args{"run": v.Run, "grep": "^line (7|4000) of", "context": 1})
	for _, want := range []string{"7-line 6 of", "8:line 7 of", "9-line 8 of", "--\n", "4001:line 4000 of"} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("grep does not show %q: %s", want, got.Text)
		}
	}
	got, _ = c.call("read_run", args{"run": v.Run, "grep": "line", "budget": 500})
	if n := len([]rune(got.Text)); n > 500 || got.Omitted == nil || got.Omitted.Lines < 4900 {
		t.Errorf("grep within 500 has %d characters and %+v", n, got.Omitted)
	}
}

// TestSmallTextIsWhole compares a text that fits with the budget of characters.
func TestSmallTextIsWhole(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	v, _ := c.call("run_command", args{"argv": []string{"printf", `a\nb\033[31mred\033[m\n10%%\r20%%\n`}, "wait_ms": 50_000})
	if v.Text != "a\nbred\n20%\n[exited 0]\n" && v.Text != "a\nbred\n20%\n" || v.Omitted != nil {
		t.Errorf("the text is %q, %+v left out", v.Text, v.Omitted)
	}
	if render.Tokens(v.Text) == 0 {
		t.Error("no text")
	}
	if v, _ = c.call("run_command", args{"argv": []string{"false"}, "wait_ms": 50_000}); v.Text == "" {
		t.Error("a failure without output has no text")
	}
}

// TestFailureShowsStderr has a run fail whose last words on stderr come before a flood.
func TestFailureShowsStderr(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	v, _ := c.call("run_command", args{"command": `echo "it went wrong here" >&2; seq 100000; exit 9`, "wait_ms": 50_000, "budget": 600})
	if !strings.Contains(v.Text, "it went wrong here") || len([]rune(v.Text)) > 600 {
		t.Errorf("the text has %d characters: %s", len([]rune(v.Text)), v.Text)
	}
}

// TestWaits reads a long command with short waits: nothing is lost, nothing twice.
func TestWaits(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	v, _ := c.call("run_command", args{"command": `for i in 1 2 3 4 5 6 7 8; do echo "step $i"; sleep 0.05; done`, "wait_ms": 10})
	all := v.Text
	for v.State != spool.StateClosed {
		v, _ = c.call("read_run", args{"run": v.Run, "after": v.Next, "wait_ms": 30, "until": "end"})
		all += v.Text
	}
	for i := 1; i <= 8; i++ {
		if n := strings.Count(all, fmt.Sprintf("step %d\n", i)); n != 1 {
			t.Errorf("step %d is shown %d times: %s", i, n, all)
		}
	}
	// What is waited for has come already.
	for _, until := range []string{"end", "output", "quiet", "ask", "turn"} {
		if got, _ := c.call("read_run", args{"run": v.Run, "until": until, "wait_ms": 50_000}); got.Why != "end" && got.Why != "output" {
			t.Errorf("until=%s of a finished run ends with %q", until, got.Why)
		}
	}
	v, _ = c.call("run_command", args{"command": "echo first; read x; echo second", "tty": true, "until": "output", "wait_ms": 50_000})
	if v.Why != "output" {
		t.Errorf("until=output ended with %q", v.Why)
	}
	if v, _ = c.call("read_run", args{"run": v.Run, "after": v.Next, "until": "end", "wait_ms": 20}); v.Why != "time" {
		t.Errorf("until=end ended with %q", v.Why)
	}
	c.call("stop_run", args{"run": v.Run, "wait_ms": 50_000})
}

// TestRepeatedStart has two calls with one id start one command.
func TestRepeatedStart(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	a := args{"argv": []string{"cat"}, "id": "once1", "stdin": "typed once", "wait_ms": 50_000}
	first, _ := c.call("run_command", a)
	again, _ := c.call("run_command", a)
	if first.Run != "once1" || again.Run != "once1" || again.Text != first.Text || !strings.Contains(first.Text, "typed once") {
		t.Errorf("the first call returned %+v, the second %+v", first, again)
	}
}

// TestBadInput gives every tool arguments that it must refuse.
func TestBadInput(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t), AllowAnswer: true}, versions[0], nil)
	v, _ := c.call("run_command", args{"argv": []string{"echo"}, "name": "webserver", "wait_ms": 50_000})
	for _, tt := range []struct {
		tool string
		args args
		want string
	}{
		{"run_command", args{}, "either command or argv"},
		{"run_command", args{"command": "x", "argv": []string{"y"}}, "either command or argv"},
		{"run_command", args{"comand": "x"}, `"command"`},
		{"run_command", args{"command": 7}, "command"},
		{"run_command", args{"command": "x", "wait_ms": 50_001}, "wait_ms"},
		{"run_command", args{"command": "x", "budget": 99}, "budget"},
		{"run_command", args{"command": "x", "until": "never"}, "until"},
		{"run_command", args{"command": "x", "until": "match"}, "match"},
		{"run_command", args{"command": "x", "until": "match", "match": "("}, "missing closing"},
		{"run_command", args{"command": "x", "id": "A B"}, "id"},
		{"run_command", args{"argv": []string{"/no/such/program"}}, "no such"},
		{"run_command", args{"command": "x", "cwd": "/no/such/dir"}, "/no/such/dir"},
		{"read_run", args{}, "run"},
		{"read_run", args{"run": "webserve"}, "did you mean webserver?"},
		{"read_run", args{"run": "zzzzzzzzzzzz"}, "the newest runs are " + string(v.Run)},
		{"read_run", args{"run": v.Run, "grep": "("}, "missing closing"},
		{"read_run", args{"run": v.Run, "view": "screen"}, "no terminal"},
		{"read_run", args{"run": v.Run, "after": -1}, "after"},
		{"send_input", args{"run": v.Run}, "text, keys or eof"},
		{"send_input", args{"run": v.Run, "keys": []string{"any"}}, "keys"},
		{"send_input", args{"run": v.Run, "keys": []string{"f13"}}, "f13"},
		{"send_input", args{"run": v.Run, "text": "x"}, "input"},
		{"stop_run", args{"run": "nobody"}, "not found"},
		{"stop_run", args{"run": v.Run, "how": "gently"}, "how"},
		{"list_runs", args{"limit": 0}, "limit"},
		{"python", args{"code": "1", "session": ""}, "session"},
		{"ask_agent", args{"prompt": "x"}, "either agent"},
		{"ask_agent", args{"prompt": "x", "agent": "nobody"}, "codex, claude"},
		{"ask_agent", args{"prompt": "x", "run": v.Run}, "no agent"},
		{"answer", args{"run": v.Run, "ask": 1}, "either choice or data"},
		{"answer", args{"run": v.Run, "ask": 1, "choice": "x"}, "asked"},
	} {
		if text := c.fails(tt.tool, tt.args); !strings.Contains(text, tt.want) {
			t.Errorf("%s with %v says %q, want %q", tt.tool, tt.args, text, tt.want)
		}
	}
}

// TestProgress has a call that waits say how far its run is.
func TestProgress(t *testing.T) {
	for _, version := range versions {
		heard := make(chan *mcp.ProgressNotificationParams, 100)
		c := connect(t, mcpapi.Options{Backend: openHost(t), Progress: 10 * time.Millisecond}, version, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				select {
				case heard <- r.Params:
				default:
				}
			},
		})
		params := &mcp.CallToolParams{Name: "run_command", Arguments: args{"command": "echo working; read x", "tty": true, "name": "slow", "wait_ms": 50_000}}
		params.SetProgressToken("p1")
		ended := make(chan error, 1)
		go func() {
			_, err := c.CallTool(t.Context(), params)
			ended <- err
		}()
		for p := range heard {
			if p.ProgressToken != "p1" || p.Progress <= 0 {
				t.Errorf("progress is %+v", p)
			}
			if strings.Contains(p.Message, "working") {
				break
			}
		}
		c.call("stop_run", args{"run": "slow", "how": "kill"})
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestCancel cancels calls that wait: the run goes on, unless the call said otherwise.
func TestCancel(t *testing.T) {
	for _, version := range versions {
		b := openHost(t)
		c := connect(t, mcpapi.Options{Backend: b}, version, nil)
		for onCancel, want := range map[string]spool.State{"leave": spool.StateRunning, "stop": spool.StateClosed} {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "run_command", Arguments: args{
					"command": "sleep 1000", "id": onCancel, "on_cancel": onCancel, "wait_ms": 50_000}})
				ended <- err
			}()
			run := spool.Attach(b, spool.RunID(onCancel))
			polltest.Until(t, "started", func() bool {
				_, err := run.Info(t.Context())
				return err == nil
			})
			cancel()
			if err := <-ended; err == nil {
				t.Error("a call that was cancelled has a result")
			}
			if want == spool.StateClosed {
				if o, err := run.Wait(t.Context()); err != nil || o.Signal != "SIGTERM" {
					t.Errorf("on_cancel=stop: %v, %v", o, err)
				}
				continue
			}
			if v, _ := c.call("read_run", args{"run": onCancel}); v.State != want {
				t.Errorf("on_cancel=%s left the run %s", onCancel, v.State)
			}
			c.call("stop_run", args{"run": onCancel, "how": "kill", "wait_ms": 50_000})
		}
	}
}
