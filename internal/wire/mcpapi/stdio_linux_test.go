package mcpapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/servertest"
)

// command is "spool mcp" with flags.
func command(t *testing.T, state string, flags ...string) *exec.Cmd {
	t.Helper()
	usePython(t)
	cmd := exec.CommandContext(t.Context(), servertest.Binary(t), append([]string{"mcp", "--state", state}, flags...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "SPOOL_SERVER=", "MY_API_KEY=secret", "PLAIN=seen")
	return cmd
}

// stdio connects a client with the command.
func stdio(t *testing.T, cmd *exec.Cmd, version string) *client {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&mcp.CommandTransport{Command: cmd}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return &client{session, t}
}

// TestStdio uses the command with clients of both revisions: runs outlive the server,
// and another one reads on.
func TestStdio(t *testing.T) {
	state := servertest.StateDir(t)
	for _, version := range versions {
		cmd := command(t, state)
		c := stdio(t, cmd, version)
		v, _ := c.call("run_command", args{"command": "echo $PWD $PLAIN $MY_API_KEY; read x; echo $x", "tty": true, "name": "stays", "until": "output", "wait_ms": 50_000})
		if !strings.Contains(v.Text, cmd.Dir+" seen\n") {
			t.Errorf("the command began in %q, want %s, without the key", v.Text, cmd.Dir)
		}
		python, _ := c.call("python", args{"code": "x = 7", "wait_ms": 50_000})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the server exited with %d", code)
		}
		again := command(t, state)
		again.Dir = cmd.Dir
		c = stdio(t, again, version)
		if v, _ = c.call("send_input", args{"run": "stays", "text": "back\n", "until": "end", "wait_ms": 50_000}); v.State != spool.StateClosed || !strings.Contains(v.Text, "back") {
			t.Errorf("after the server the run is %+v", v)
		}
		cell, _ := c.call("python", args{"code": "x + 1", "wait_ms": 50_000})
		if cell.Run != python.Run || strings.TrimSpace(cell.Text) != "8" {
			t.Errorf("after the server the session has %+v", cell)
		}
		c.call("stop_run", args{"run": cell.Run, "how": "kill", "wait_ms": 50_000})
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStopOnExit has the command stop what it started.
func TestStopOnExit(t *testing.T) {
	state := servertest.StateDir(t)
	c := stdio(t, command(t, state, "--stop-on-exit"), versions[0])
	v, _ := c.call("run_command", args{"command": "sleep 1000", "wait_ms": 0})
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	c = stdio(t, command(t, state), versions[0])
	if v, _ = c.call("read_run", args{"run": v.Run, "until": "end", "wait_ms": 50_000}); v.Outcome == nil || v.Outcome.Signal != "SIGTERM" {
		t.Errorf("the run is %+v", v)
	}
}

// TestStdoutHasOnlyMessages writes what is no message: the server says so, if at all, on
// stderr.
func TestStdoutHasOnlyMessages(t *testing.T) {
	cmd := command(t, servertest.StateDir(t))
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout = strings.NewReader("hello\n{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n"), &stdout
	_ = cmd.Run() // it may call that a failure
	for line := range strings.Lines(stdout.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("stdout has %q", line)
		}
	}
}

// TestPrintConfig reads the configuration of each client as the client would.
func TestPrintConfig(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	for _, tt := range []struct{ client, key string }{
		{"claude", "mcpServers"}, {"codex", "mcp_servers"}, {"cursor", "mcpServers"}, {"vscode", "servers"}, {"zed", "context_servers"},
	} {
		out, err := exec.CommandContext(t.Context(), servertest.Binary(t), "mcp", "--print-config", tt.client, "--allow-answer",
			"--server", "ws://127.0.0.1:1", "--token-file", token).Output()
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]map[string]struct {
			Command string
			Args    []string
		}
		decode := json.Unmarshal
		if tt.client == "codex" {
			decode = func(b []byte, v any) error { return toml.Unmarshal(b, v) }
		}
		if err := decode(out, &config); err != nil {
			t.Fatal(err)
		}
		got := config[tt.key]["spool"]
		if got.Command != servertest.Binary(t) || strings.Join(got.Args, " ") != "mcp --server ws://127.0.0.1:1 --token-file "+token+" --allow-answer" {
			t.Errorf("%s: %s", tt.client, out)
		}
	}
}
