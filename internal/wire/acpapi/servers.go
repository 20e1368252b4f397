package acpapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// mcpServer is a server of the Model Context Protocol that an editor has for its agent.
type mcpServer struct {
	Type    string   `json:"type"` // http or sse; empty for a command
	Name    string   `json:"name"`
	Command string   `json:"command"`
	Args    []string `json:"args"`
	Env     []pair   `json:"env"`
	URL     string   `json:"url"`
	Headers []pair   `json:"headers"`
}

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// takesServers says which servers, beside commands, the agents take that take any.
var takesServers = map[string]struct{ http, sse bool }{agent.Claude: {true, true}, agent.Codex: {true, false}, agent.OpenCode: {true, true}}

// hand has the agent of a spec use the servers, and returns the names of those that it does
// not take. What may be secret is in the environment of the agent, not on its command line.
func hand(servers []mcpServer, config *agent.Config, spec *spool.Spec) (left []string) {
	if len(servers) == 0 {
		return nil
	}
	takes, some := takesServers[config.Agent]
	spec.Env = maps.Clone(spec.Env)
	if spec.Env == nil {
		spec.Env = make(map[string]string)
	}
	claude, opencode := make(object), make(object)
	config.Extra = slices.Clone(config.Extra)
	for i, s := range servers {
		switch {
		case !some, s.Type == "http" && !takes.http, s.Type == "sse" && !takes.sse, s.Type != "" && s.Type != "http" && s.Type != "sse" && s.Type != "stdio":
			left = append(left, s.Name)
		case config.Agent == agent.Claude:
			claude[s.Name] = s.claude(i, spec.Env)
		case config.Agent == agent.OpenCode:
			opencode[s.Name] = s.opencode()
		default:
			config.Extra = append(config.Extra, "-c", s.codex(i, spec.Env))
		}
	}
	if len(claude) > 0 {
		config.Extra = append(config.Extra, "--mcp-config="+string(encode(object{"mcpServers": claude})))
	}
	if len(opencode) > 0 { // beside the configuration that the user has in files
		spec.Env["OPENCODE_CONFIG_CONTENT"] = string(encode(object{"mcp": opencode}))
	}
	return left
}

// opencode is the server in the form of opencode, which reads it from its environment.
func (s *mcpServer) opencode() object {
	table := func(pairs []pair) object {
		out := object{}
		for _, p := range pairs {
			out[p.Name] = p.Value
		}
		return out
	}
	if s.Type == "http" || s.Type == "sse" {
		return object{"type": "remote", "url": s.URL, "headers": table(s.Headers), "enabled": true}
	}
	return object{"type": "local", "command": append([]string{s.Command}, s.Args...), "environment": table(s.Env), "enabled": true}
}

// claude is the server in the form of Claude Code, which fills in variables.
func (s *mcpServer) claude(number int, env map[string]string) object {
	hide := func(kind string, pairs []pair) map[string]string {
		out := make(map[string]string)
		for i, p := range pairs {
			name := fmt.Sprintf("SPOOL_MCP_%d_%s_%d", number, kind, i)
			env[name] = p.Value
			out[p.Name] = "${" + name + "}"
		}
		return out
	}
	if s.Type == "http" || s.Type == "sse" {
		return object{"type": s.Type, "url": s.URL, "headers": hide("HEADER", s.Headers)}
	}
	return object{"type": "stdio", "command": s.Command, "args": append([]string{}, s.Args...), "env": hide("ENV", s.Env)}
}

// ordinary are variables that an agent needs as they are, and that hold no secrets.
var ordinary = []string{"HOME", "LANG", "PATH", "PWD", "SHELL", "TERM", "TMPDIR", "USER"}

// codex is the server as an option of codex, in TOML. It passes on variables of its own to
// servers, by their names.
func (s *mcpServer) codex(number int, env map[string]string) string {
	key := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s.Name)
	table := func(pairs []pair) string {
		var parts []string
		for _, p := range pairs {
			parts = append(parts, string(encode(p.Name))+"="+string(encode(p.Value)))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	if s.Type == "http" {
		var names []pair
		for i, h := range s.Headers {
			name := fmt.Sprintf("SPOOL_MCP_%d_HEADER_%d", number, i)
			env[name] = h.Value
			names = append(names, pair{h.Name, name})
		}
		return fmt.Sprintf("mcp_servers.%s={url=%s,env_http_headers=%s}", key, encode(s.URL), table(names))
	}
	var plain []pair
	passed := []string{}
	for _, p := range s.Env {
		if value, taken := env[p.Name]; slices.Contains(ordinary, p.Name) || taken && value != p.Value {
			plain = append(plain, p)
			continue
		}
		env[p.Name] = p.Value
		passed = append(passed, p.Name)
	}
	return fmt.Sprintf("mcp_servers.%s={command=%s,args=%s,env=%s,env_vars=%s}", key, encode(s.Command), encode(append([]string{}, s.Args...)), table(plain), encode(passed))
}
