package mcpapi_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// scenarios are those of the protocol's conformance suite that a server can pass without
// the tools, prompts and resources that the suite calls by their names. docs/mcp.md lists
// the others.
var scenarios = []string{"server-initialize", "ping", "tools-list", "resources-list", "server-sse-multiple-streams", "dns-rebinding-protection"}

// suite returns the program of the conformance suite and the Node that it needs.
func suite(t *testing.T) (node, program string) {
	t.Helper()
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	p := npmtest.Program{
		Name:     "mcp-conformance-0.1.16",
		Packages: []string{"@modelcontextprotocol/conformance@0.1.16", "node-linux-" + arch + "@24.21.0"},
		File:     filepath.Join("node_modules", "node-linux-"+arch, "bin", "node"),
	}
	node, err := p.Cached()
	if err != nil {
		t.Fatal(err)
	}
	return node, filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(node))), "@modelcontextprotocol", "conformance", "dist", "index.js")
}

// TestConformance runs the protocol's own suite, which sends no tokens, against a server
// without subjects.
func TestConformance(t *testing.T) {
	node, program := suite(t)
	api := httpapi.New(httpapi.Options{
		Backend: openHost(t), Gate: &access.Gate{},
		MCP: mcpapi.NewHandler(mcpapi.Options{Env: &spool.EnvPolicy{Inherit: "core"}}).Serve,
	})
	s := httptest.NewServer(api)
	defer func() {
		api.Close(0)
		s.CloseClientConnections()
		s.Close()
	}()
	run := func(scenario string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), node, program, "server", "--url", s.URL+"/mcp", "--scenario", scenario)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "HOME="+cmd.Dir)
		return cmd.CombinedOutput()
	}
	for _, scenario := range scenarios {
		if out, err := run(scenario); err != nil {
			t.Errorf("%s: %v\n%s", scenario, err, out)
		}
	}
	if out, err := run("tools-call-simple-text"); err == nil { // it calls a tool that there is not
		t.Errorf("the suite finds no fault:\n%s", out)
	}
}
