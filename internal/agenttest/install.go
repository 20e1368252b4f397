// Package agenttest provides the real coding agents for tests and benchmarks:
// pinned versions from npm, each with its own home in which it uses only a
// scripted model of package modeltest.
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

// All lists the agents.
var All = []string{Codex, Claude, OpenCode, Pi}

// Versions holds the pinned versions.
var Versions = map[string]string{
	Codex:    codextest.Version,
	Claude:   "2.1.325",
	OpenCode: "1.18.33",
	Pi:       "0.87.1",
}

// nodeVersion is the version of Node for pi, which needs a newer one than many
// machines have.
const nodeVersion = "24.21.0"

// Path returns the executable of an agent. It installs the agent into the
// user's cache directory the first time, and fails the test on error.
func Path(tb testing.TB, agent string) string {
	tb.Helper()
	path, err := Install(agent)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Install installs the pinned version of an agent into the user's cache
// directory, unless it is there, and returns its executable, which has the name
// of the agent.
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

// program describes an agent for npm. The native packages are installed
// directly, because their parent packages only choose one and need Node.
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
		return npmtest.Program{}, fmt.Errorf("install %s: not a pinned agent", agent)
	}
	return p, nil
}
