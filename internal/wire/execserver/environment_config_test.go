package execserver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// testMachine is an environment whose files are below one directory.
func testMachine(t *testing.T, files map[string]string) (environment, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "$P", dir)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return environment{home: dir + "/home", codexHome: dir + "/codex", system: dir + "/etc", hostname: "vm"}, dir
}

// ask calls a method; $D in the params and in the answer is the directory.
func (e environment) ask(t *testing.T, dir, method, params string) string {
	t.Helper()
	result, _, err := environmentMethod(method, json.RawMessage(strings.ReplaceAll(params, "$D", fileuri.Format(dir))), e)
	return strings.NewReplacer(fileuri.Format(dir), "$D", dir, "$P").Replace(answerText(t, result, err))
}

// TestConfigLayers checks the layers of the system and of the administrator,
// which the comparison with codex does not cover.
func TestConfigLayers(t *testing.T) {
	env, dir := testMachine(t, map[string]string{
		"etc/config.toml":         "project_root_markers = [\"ROOT\"]\n[mcp_servers.s]\nurl = \"s\"\n",
		"etc/requirements.toml":   "[mcp_servers.r.identity]\nurl = \"s\"\n",
		"etc/managed_config.toml": "approval_policy = \"never\"\nsandbox_mode = \"workspace-write\"\napprovals_reviewer = \"auto_review\"\n[mcp_servers.g]\nurl = \"g\"\n[projects.\"$P/proj\"]\ntrust_level = \"trusted\"\n",
		"codex/config.toml":       "[mcp_servers.u]\nurl = \"u\"\n",
		"proj/ROOT":               "",
		"proj/.codex/config.toml": "[mcp_servers.p]\nurl = \"p\"\n",
		"proj/sub/x":              "",
	})
	const params = `{"cwd":"$D/proj/sub","configPaths":[["mcp_servers"]],"requirementsPaths":[["mcp_servers"],["allowed_approval_policies"],["allowed_sandbox_modes"],["allowed_approvals_reviewers"]]}`
	want := `{"userHomeDir":"$D/home","codexHomeDir":"$D/codex","hostname":"vm",` +
		`"config":{"layers":[` +
		`{"source":"system ($P/etc/config.toml)","baseDir":"$D/etc","toml":"[mcp_servers.s]\nurl = \"s\"\n"},` +
		`{"source":"user ($P/codex/config.toml)","baseDir":"$D/codex","toml":"[mcp_servers.u]\nurl = \"u\"\n"},` +
		`{"source":"project ($P/proj/.codex/config.toml)","baseDir":"$D/proj/.codex","toml":"[mcp_servers.p]\nurl = \"p\"\n"},` +
		`{"source":"legacy managed_config.toml ($P/etc/managed_config.toml)","baseDir":"$D/etc","toml":"[mcp_servers.g]\nurl = \"g\"\n"}` +
		`],"cloudInsertionIndex":1},` +
		`"requirements":{"layers":[` +
		`{"source":"$P/etc/requirements.toml","baseDir":"$D/etc","toml":"[mcp_servers.r.identity]\nurl = \"s\"\n"},` +
		`{"source":"$P/etc/managed_config.toml","baseDir":"$D/etc","toml":"allowed_approval_policies = [\"never\"]\nallowed_approvals_reviewers = [\"auto_review\", \"user\"]\nallowed_sandbox_modes = [\"read-only\", \"workspace-write\"]\n"}` +
		`],"cloudInsertionIndex":1}}`
	if got := env.ask(t, dir, "environmentConfig/read", params); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestConfigErrors(t *testing.T) {
	for _, tt := range []struct{ config, want string }{
		{"model =\n", "-32603 failed to load executor-local config: $P/codex/config.toml: toml: line 1"},
		{"project_root_markers = 3\n", "-32603 failed to load executor-local config: project_root_markers must be an array of strings"},
		{"project_root_markers = [3]\n", "-32603 failed to load executor-local config: project_root_markers must be an array of strings"},
		{"projects = 3\n", "-32603 failed to load executor-local config: projects must be a table"},
		{"projects.x = 3\n", "-32603 failed to load executor-local config: projects.x must be a table"},
		{"[projects.x]\ntrust_level = 3\n", "-32603 failed to load executor-local config: projects.x.trust_level must be `trusted` or `untrusted`"},
		{strings.Repeat("#", maxConfigFile+1), "-32603 failed to load executor-local config: failed to read config file $P/codex/config.toml: file is too large to read: limit is 4194304 bytes"},
	} {
		env, dir := testMachine(t, map[string]string{"codex/config.toml": tt.config})
		got := env.ask(t, dir, "environmentConfig/read", `{"cwd":"$D","configPaths":[["model"]],"requirementsPaths":[]}`)
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("\n got %s\nwant %s", got, tt.want)
		}
	}
}

// FuzzTOML checks that what parseTOML accepts is the same after encode.
func FuzzTOML(f *testing.F) {
	f.Add("a = 1\n[b]\nc = [1, {d = 2}]\n[[e.f]]\n[[e.f]]\ng = 1979-05-27\n")
	f.Add("x = [{a = 1, b = {c = 2}}, {}]\n\"odd key\" = 'y\"z'\ninf = inf\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parseTOML(text)
		if err != nil {
			return
		}
		encoded := table.encode()
		again, err := parseTOML(encoded)
		if err != nil {
			t.Fatalf("%q becomes %q: %v", text, encoded, err)
		}
		if twice := again.encode(); twice != encoded {
			t.Errorf("%q becomes %q, then %q", text, encoded, twice)
		}
	})
}
