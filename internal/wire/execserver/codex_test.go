package execserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/wire/execserver"
)

// runCodex runs the real codex with a scripted model and our server.
func runCodex(t *testing.T, binary, url, dir string, args []string, script ...modeltest.Step) []codextest.Output {
	t.Helper()
	model, err := modeltest.New(modeltest.InOrder(script...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	result, err := codextest.Exec(t.Context(), codextest.Config{Binary: binary, Model: model.URL(), Server: url, Dir: dir, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	if err := model.Err(); err != nil || result.ExitCode != 0 {
		for _, e := range result.Events {
			t.Logf("%s", e.Raw)
		}
		t.Fatalf("exit code %d, %v\n%s", result.ExitCode, err, result.Stderr)
	}
	return codextest.Outputs(model)
}

// TestCodexTakesShellSnapshots checks that the real codex, if it is allowed to,
// starts its commands from a snapshot.
func TestCodexTakesShellSnapshots(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	binary := codextest.Binary(t)
	home := snapshotHome(t, map[string]string{".bashrc": profile})
	t.Setenv("SHELL", "/bin/bash")
	url, _ := newServer(t, execserver.Options{})
	outs := runCodex(t, binary, url, home,
		[]string{"--enable=shell_snapshot_v2", "-c", fmt.Sprintf("shell_environment_policy.set={HOME=%q}", home)},
		codextest.Run(codextest.Command{Cmd: "helper 1; echo $PROFILE_ALLOWED"}),
		codextest.Run(codextest.Command{Cmd: "hello; cat $HOME/captures"}),
		modeltest.Say("done"))
	if len(outs) != 2 || outs[0].Text != "helper 1\na b\n" || outs[1].Text != "aliased\nx" {
		t.Errorf("the model saw %+v", outs)
	}
}

// TestCodexFindsMCPServersOfTheMachine checks that the real codex reads the
// configuration of the machine, and calls an MCP server that it names from there,
// with a token from the machine's environment.
func TestCodexFindsMCPServersOfTheMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	binary := codextest.Binary(t)
	var mu sync.Mutex
	var calls []string
	mcp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		mu.Lock()
		calls = append(calls, m.Method+" "+r.Header.Get("Authorization"))
		mu.Unlock()
		result := "{}"
		switch m.Method {
		case "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"machine","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"ping","description":"Ping.","inputSchema":{"type":"object","properties":{}}}]}`
		}
		if m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(mcp.Close)

	home := t.TempDir()
	config := fmt.Sprintf("[mcp_servers.machine]\nurl = %q\nbearer_token_env_var = \"MACHINE_TOKEN\"\n", mcp.URL)
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CODEX_HOME", home)
	t.Setenv("MACHINE_TOKEN", "token")
	url, _ := newServer(t, execserver.Options{})
	runCodex(t, binary, url, t.TempDir(), nil, modeltest.Say("done"))
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(calls, ", "); !strings.Contains(got, "tools/list Bearer token") {
		t.Errorf("the MCP server was called with %s", got)
	}
}
