// Package agenttest has the real coding agents ready for tests and benchmarks:
// pinned versions from npm, each with a home of its own in which it talks to a
// model of package modeltest and to nobody else.
package agenttest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/npmtest"
)

// The agents, by the name of their command.
const (
	Codex    = "codex"
	Claude   = "claude"
	OpenCode = "opencode"
	Pi       = "pi"
)

// All are the agents there are.
var All = []string{Codex, Claude, OpenCode, Pi}

// Versions are the pinned ones.
var Versions = map[string]string{
	Codex:    codextest.Version,
	Claude:   "2.1.325",
	OpenCode: "1.18.33",
	Pi:       "0.87.1",
}

// nodeVersion is the Node that pi runs on: it needs a newer one than many
// machines have.
const nodeVersion = "24.21.0"

// Path returns the executable of an agent, installing it into the user's
// cache directory the first time. It fails the test if it cannot.
func Path(tb testing.TB, agent string) string {
	tb.Helper()
	path, err := Install(agent)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Install makes sure that the pinned version of an agent is in the user's
// cache directory and returns its executable, whose name is that of the agent.
func Install(agent string) (string, error) {
	if agent == Codex {
		return codextest.Install()
	}
	p, err := program(agent)
	if err != nil {
		return "", err
	}
	return p.Cached()
}

// program says where npm puts an agent. The native packages are installed
// directly: those they belong to only choose one, and want Node to do so.
func program(agent string) (npmtest.Program, error) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	if runtime.GOOS != "linux" || arch == "" {
		return npmtest.Program{}, fmt.Errorf("install %s: no pinned version for %s/%s", agent, runtime.GOOS, runtime.GOARCH)
	}
	p := npmtest.Program{Name: agent + "-" + Versions[agent]}
	at := "-linux-" + arch + "@" + Versions[agent]
	switch agent {
	case Claude:
		p.Packages = []string{"@anthropic-ai/claude-code" + at}
		p.File = path.Join("node_modules", "@anthropic-ai", "claude-code-linux-"+arch, "claude")
	case OpenCode:
		p.Packages = []string{"opencode" + at}
		p.File = path.Join("node_modules", "opencode-linux-"+arch, "bin", "opencode")
	case Pi:
		p.Packages = []string{"@earendil-works/pi-coding-agent@" + Versions[agent], "node-linux-" + arch + "@" + nodeVersion}
		p.File = path.Join("bin", "pi")
		p.Finish = func(dir string) error {
			script := `#!/bin/sh
here=$(dirname "$(readlink -f "$0")")/../node_modules
exec "$here/node-linux-` + arch + `/bin/node" "$here/@earendil-works/pi-coding-agent/dist/bundle/cli.js" "$@"
`
			if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, p.File), []byte(script), 0o755)
		}
	default:
		return npmtest.Program{}, fmt.Errorf("install %s: not an agent that is pinned", agent)
	}
	return p, nil
}
