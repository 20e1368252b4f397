package agenttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/modeltest"
)

// Retries is how often an agent retries a request in a home of this package, so
// that a failure takes a second and not minutes.
const Retries = 2

// provider and model are the names of the scripted model in opencode and pi.
const (
	provider = "scripted"
	model    = "scripted-model"
)

// Home makes a home directory in which an agent uses a scripted model. It
// returns the environment with the home and with the agent in PATH.
func Home(tb testing.TB, agent string, m *modeltest.Model) map[string]string {
	tb.Helper()
	env, err := WriteHome(tb.TempDir(), agent, m)
	if err != nil {
		tb.Fatal(err)
	}
	return env
}

// WriteHome makes such a home in a directory.
func WriteHome(dir, agent string, m *modeltest.Model) (map[string]string, error) {
	path, err := Install(agent)
	if err != nil {
		return nil, err
	}
	env := map[string]string{
		"HOME": dir,
		"LANG": "C.UTF-8",
		"PATH": filepath.Dir(path) + ":" + os.Getenv("PATH"),
		"TERM": "dumb",
	}
	switch agent {
	case Codex:
		env["CODEX_HOME"] = dir
		err = codextest.WriteConfig(dir, m.URL(), Retries)
	case Claude:
		env["ANTHROPIC_API_KEY"] = "dummy-key"
		env["ANTHROPIC_BASE_URL"] = m.Root()
		env["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
		env["CLAUDE_CODE_MAX_RETRIES"] = fmt.Sprint(Retries)
		env["CLAUDE_CONFIG_DIR"] = dir
		env["DISABLE_AUTOUPDATER"] = "1"
		env["DISABLE_ERROR_REPORTING"] = "1"
		env["DISABLE_TELEMETRY"] = "1"
	case OpenCode:
		for _, name := range []string{"CACHE", "CONFIG", "DATA", "STATE"} {
			env["XDG_"+name+"_HOME"] = filepath.Join(dir, name)
		}
		env["OPENCODE_CONFIG"] = filepath.Join(dir, "opencode.json")
		for _, name := range []string{"AUTOUPDATE", "DEFAULT_PLUGINS", "LSP_DOWNLOAD", "MODELS_FETCH"} {
			env["OPENCODE_DISABLE_"+name] = "1"
		}
		if err = writeOpenCode(env["OPENCODE_CONFIG"], m.URL()); err == nil {
			err = withoutPlugins(filepath.Join(env["XDG_CONFIG_HOME"], "opencode"))
		}
	case Pi:
		env["CI"] = "1"
		env["NO_COLOR"] = "1"
		env["PI_CODING_AGENT_DIR"] = dir
		env["PI_OFFLINE"] = "1"
		err = writePi(dir, m.URL())
	default:
		return nil, fmt.Errorf("no home for agent %s", agent)
	}
	if err != nil {
		return nil, fmt.Errorf("make a home for %s: %w", agent, err)
	}
	return env, nil
}

type object = map[string]any

func writeOpenCode(path, url string) error {
	return writeJSON(path, object{
		"$schema":    "https://opencode.ai/config.json",
		"autoupdate": false,
		"share":      "disabled",
		"model":      provider + "/" + model,
		"provider": object{provider: object{
			"npm":     "@ai-sdk/openai-compatible",
			"name":    "Scripted",
			"options": object{"baseURL": url, "apiKey": "dummy-key"},
			"models": object{model: object{
				"name":  "Scripted",
				"limit": object{"context": 128_000, "output": 8192},
				"cost":  object{"input": 1, "output": 2},
			}},
		}},
	})
}

// withoutPlugins keeps opencode from downloading plugin dependencies, a hundred
// megabytes, in the background of its first start in a home. Opencode skips the
// download if the lock file names the package.
func withoutPlugins(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "node_modules"), 0o700); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "package-lock.json"), object{"packages": object{"": object{
		"dependencies": object{"@opencode-ai/plugin": "*"},
	}}})
}

func writePi(dir, url string) error {
	err := writeJSON(filepath.Join(dir, "models.json"), object{"providers": object{provider: object{
		"baseUrl": url,
		"api":     "openai-completions",
		"apiKey":  "dummy-key",
		"models": []object{{
			"id": model, "name": "Scripted", "reasoning": false, "input": []string{"text", "image"},
			"contextWindow": 128_000, "maxTokens": 8192,
			"cost": object{"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0},
		}},
	}}})
	if err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "settings.json"), object{
		"defaultProvider": provider,
		"defaultModel":    model,
		"retry":           object{"enabled": true, "maxRetries": Retries, "baseDelayMs": 100},
	})
}

func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}
