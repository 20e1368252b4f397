package mcpapi_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// plotCode draws with what users draw with.
const plotCode = "import matplotlib\nmatplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nplt.plot([1, 4, 9])\nplt.show()\nprint('drawn')"

// TestRealAgents has the real codex and claude, on a scripted model, start a command, read
// it and draw, with the configuration that the command prints for them.
func TestRealAgents(t *testing.T) {
	usePython(t)
	for _, name := range []string{agenttest.Codex, agenttest.Claude} {
		t.Run(name, func(t *testing.T) {
			state := servertest.StateDir(t)
			m, err := modeltest.New(modeltest.ByTurn(
				modeltest.CallMCP("spool", "run_command", args{"command": "echo built here; seq 1000", "name": "built", "wait_ms": 50_000}),
				modeltest.CallMCP("spool", "read_run", args{"run": "built", "grep": "^77.?$", "context": 0}),
				modeltest.CallMCP("spool", "python", args{"code": plotCode, "wait_ms": 50_000}),
				modeltest.Say("All done."),
			))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			config, err := exec.CommandContext(t.Context(), servertest.Binary(t), "mcp", "--state", state, "--stop-on-exit", "--print-config", name).Output()
			if err != nil {
				t.Fatal(err)
			}
			env := agenttest.Home(t, name, m)
			var flags []string
			if name == agenttest.Codex {
				config = append(config, "\n[mcp_servers.spool.env]\nVIRTUAL_ENV = \""+os.Getenv("VIRTUAL_ENV")+"\"\n"...)
				path := filepath.Join(env["CODEX_HOME"], "config.toml")
				before, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, append(append(before, '\n'), config...), 0o600); err != nil {
					t.Fatal(err)
				}
				flags = []string{"exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Go."}
			} else {
				path := filepath.Join(env["HOME"], "mcp.json")
				if err := os.WriteFile(path, config, 0o600); err != nil {
					t.Fatal(err)
				}
				flags = []string{"-p", "--output-format", "stream-json", "--verbose", "--mcp-config", path, "--allowedTools", "mcp__spool", "--", "Go."}
			}
			cmd := exec.CommandContext(t.Context(), agenttest.Path(t, name), flags...)
			cmd.Dir = t.TempDir()
			cmd.Env = []string{"VIRTUAL_ENV=" + os.Getenv("VIRTUAL_ENV"), "MCP_TIMEOUT=60000", "ENABLE_TOOL_SEARCH=false"}
			for key, value := range env {
				cmd.Env = append(cmd.Env, key+"="+value)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			// What it left running may write to its home, which is removed next.
			polltest.Until(t, "the end of its processes", func() bool {
				return cmd.Process == nil || errors.Is(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL), syscall.ESRCH)
			})
			if err != nil || m.Err() != nil {
				t.Fatalf("%v, model: %v\n%s\n%s", err, m.Err(), out, &stderr)
			}
			requests := m.Requests()
			last := requests[len(requests)-1]
			var results []string
			for _, o := range last.Outputs() {
				results = append(results, o.Output.String())
			}
			if len(results) != 3 {
				var tools []string
				for _, tool := range last.Tools {
					tools = append(tools, tool.Name)
				}
				t.Fatalf("%d results: %q, tools %q\n%s\n%s", len(results), results, tools, out, &stderr)
			}
			for i, want := range []string{"built here", "78:77", "drawn"} {
				if !strings.Contains(results[i], want) {
					t.Errorf("result %d has no %q: %s", i+1, want, results[i])
				}
			}
			if !strings.Contains(string(last.Body), "image/png") {
				t.Errorf("the model got no image: %s", results[2])
			}
		})
	}
}
