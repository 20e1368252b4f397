package acpapi

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// TestServers hands the MCP servers of an editor to agents: their secrets are in the
// environment, and the servers that an agent does not take are named.
func TestServers(t *testing.T) {
	servers := []mcpServer{
		{Name: "a b", Command: "/bin/x", Args: []string{`"q"`}, Env: []pair{{"TOKEN", "s1"}, {"PATH", "/bin"}}},
		{Type: "http", Name: "web", URL: "https://example.org/mcp", Headers: []pair{{"Authorization", "s2"}}},
		{Type: "sse", Name: "old", URL: "https://example.org/sse"},
		{Type: "carrier pigeon", Name: "new"},
	}
	for _, tt := range []struct {
		agent, left, extra string
		env                map[string]string
	}{
		{agent.Claude, "new", `--mcp-config={"mcpServers":{"a b":{"args":["\"q\""],"command":"/bin/x","env":{"PATH":"${SPOOL_MCP_0_ENV_1}","TOKEN":"${SPOOL_MCP_0_ENV_0}"},"type":"stdio"},` +
			`"old":{"headers":{},"type":"sse","url":"https://example.org/sse"},"web":{"headers":{"Authorization":"${SPOOL_MCP_1_HEADER_0}"},"type":"http","url":"https://example.org/mcp"}}}`,
			map[string]string{"SPOOL_MCP_0_ENV_0": "s1", "SPOOL_MCP_0_ENV_1": "/bin", "SPOOL_MCP_1_HEADER_0": "s2"}},
		{agent.Codex, "old new", `-c mcp_servers.a_b={command="/bin/x",args=["\"q\""],env={"PATH"="/bin"},env_vars=["TOKEN"]} ` +
			`-c mcp_servers.web={url="https://example.org/mcp",env_http_headers={"Authorization"="SPOOL_MCP_1_HEADER_0"}}`,
			map[string]string{"TOKEN": "s1", "SPOOL_MCP_1_HEADER_0": "s2"}},
		{agent.OpenCode, "new", "", map[string]string{"OPENCODE_CONFIG_CONTENT": `{"mcp":{"a b":{"command":["/bin/x","\"q\""],"enabled":true,"environment":{"PATH":"/bin","TOKEN":"s1"},"type":"local"},` +
			`"old":{"enabled":true,"headers":{},"type":"remote","url":"https://example.org/sse"},"web":{"enabled":true,"headers":{"Authorization":"s2"},"type":"remote","url":"https://example.org/mcp"}}}`}},
		{agent.Pi, "a b web old new", "", map[string]string{}},
	} {
		config, spec := agent.Config{Agent: tt.agent}, spool.Spec{}
		left := hand(servers, &config, &spec)
		if strings.Join(left, " ") != tt.left || strings.Join(config.Extra, " ") != tt.extra || !maps.Equal(spec.Env, tt.env) {
			t.Errorf("%s: left %q, arguments\n%s\nvariables %v", tt.agent, left, strings.Join(config.Extra, " "), spec.Env)
		}
	}
	given := agent.Config{Agent: agent.Codex, Extra: slices.Grow([]string{"-x"}, 9)}
	config, spec := given, spool.Spec{Env: map[string]string{"A": "b"}}
	env := spec.Env
	hand(servers[:1], &config, &spec)
	if len(given.Extra[:2][1]) != 0 || len(env) != 1 {
		t.Errorf("the options of the server changed: %q, %v", given.Extra[:2], env)
	}
}
