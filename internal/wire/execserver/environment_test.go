package execserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

func TestEnvironmentInfo(t *testing.T) {
	t.Setenv("HOME", "/home/some one")
	t.Setenv("SHELL", "/bin/sh")
	t.Setenv("TMPDIR", "/var/tmp")
	env := newEnvironment("/srv/work", "1.2.3")
	b, err := json.Marshal(env.info())
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"executorVersion": "1.2.3", "cwd": "file:///srv/work", "userHomeDir": "file:///home/some%20one",
		"tempDir": "file:///var/tmp", "shell": map[string]any{"name": "sh", "path": "/bin/sh"},
		"prependPathDirs": []any{}, "temporaryDirectories": []any{"file:///var/tmp"},
	} {
		if fmt.Sprint(got[name]) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if id, _ := got["providerId"].(string); !regexp.MustCompile(`^sha256:[0-9a-f]{64}$`).MatchString(id) {
		t.Errorf("providerId is %s", id)
	}
	if again := newEnvironment("/", "2"); again.providerID != env.providerID {
		t.Error("providerId is not stable")
	}
	capabilities, _ := got["capabilities"].(map[string]any)
	if len(capabilities) != 15 {
		t.Errorf("%d capabilities", len(capabilities))
	}
	for _, name := range []string{"capabilityDiscoveryV2", "environmentConfigRead", "httpHeaderEnvVars", "fileWriteStreaming", "shellSnapshotV2"} {
		if capabilities[name] != true {
			t.Errorf("%s is not advertised", name)
		}
	}
	for _, name := range []string{"networkProxyReviewDomains", "credentialMasking", "credentialMaskingCustomProviders"} {
		if capabilities[name] != false {
			t.Errorf("%s is advertised", name)
		}
	}
	for _, name := range []string{"networkProxyLaunch", "sandboxedFileStreaming", "capabilityDiscoverySandbox"} { // nothing enforces them elsewhere
		if want := runtime.GOOS == "linux"; capabilities[name] != want {
			t.Errorf("%s is advertised: %v, want %v", name, capabilities[name], want)
		}
	}
}

func TestTemporaryDirectories(t *testing.T) {
	for _, tt := range []struct{ tmpdir, dir, list string }{
		{"", "file:///tmp", "[]"},
		{"/var/tmp/", "file:///var/tmp", "[file:///var/tmp]"},
		{"x/y", "file:///srv/work/x/y", "[file:///srv/work/x/y]"},
	} {
		t.Setenv("TMPDIR", tt.tmpdir)
		info := newEnvironment("/srv/work", "1").info()
		if list := fmt.Sprint(info.TemporaryDirectories); info.TempDir != tt.dir || list != tt.list {
			t.Errorf("TMPDIR=%s: %s and %s, want %s and %s", tt.tmpdir, info.TempDir, list, tt.dir, tt.list)
		}
	}
}

func TestFindShell(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	zsh, fish := write("zsh", 0o755), write("fish", 0o755)
	broken := filepath.Join(dir, "x", "bash")
	if got := findShell(broken, fish, "zsh", zsh); got != (shell{"zsh", zsh}) {
		t.Errorf("%+v", got)
	}
	if err := os.Chmod(zsh, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := findShell(zsh, ""); got.Path == zsh || got.Name != "bash" && got.Name != "sh" {
		t.Errorf("%+v", got)
	}
	passwd := write("passwd", 0o644)
	if err := os.WriteFile(passwd, []byte("a:x:1:1::/:/bin/zsh\nshort:x\nb:x:2:2:,,:/home/b:/bin/bash\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := passwdShell(passwd, "2"); got != "/bin/bash" {
		t.Error(got)
	}
	if got := passwdShell(passwd, "3") + passwdShell(broken, "1"); got != "" {
		t.Error(got)
	}
}

func TestEnvironmentMethods(t *testing.T) {
	dir := t.TempDir()
	skill := filepath.Join(dir, "skills", "foo")
	if err := os.MkdirAll(skill, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"SKILL.md", "other.md"} {
		if err := os.WriteFile(filepath.Join(skill, name), []byte("body"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	env := environment{home: dir, codexHome: dir + "/.codex", system: dir + "/etc", hostname: "vm"}
	for _, tt := range []struct{ method, params, want string }{
		{"environment/status", `{}`, `{"status":"ready"}`},
		{"environment/status", `null`, `{"status":"ready"}`},
		{"environment/status", `{"x":1}`, "-32602 invalid type: map, expected unit"},
		{"environment/info", `{"x":1}`, "-32602 invalid type: map, expected unit"},
		{"environmentConfig/read", `{"cwd":"file:///tmp","configPaths":[["mcp_servers"]],"requirementsPaths":[["mcp_servers"]]}`,
			`{"userHomeDir":"$D","codexHomeDir":"$D/.codex","hostname":"vm","config":{"layers":[],"cloudInsertionIndex":0},"requirements":{"layers":[],"cloudInsertionIndex":0}}`},
		{"environmentConfig/read", `{"cwd":"file:///tmp","configPaths":[]}`, "-32602 missing field `requirementsPaths`"},
		{"environmentConfig/read", `{"cwd":"/tmp","configPaths":[["a"]],"requirementsPaths":[]}`, "-32602 invalid URI: relative URL without a base"},
		{"environmentConfig/read", `{"cwd":"file:///C:/x","configPaths":[["a"]],"requirementsPaths":[]}`, "-32602 'file:///C:/x' is invalid on 'linux'"},
		{"environmentConfig/read", `{"cwd":"file:///tmp","configPaths":[],"requirementsPaths":[]}`, "-32602 at least one config or requirements path is required"},
		{"environmentConfig/read", `{"cwd":"file:///tmp","configPaths":[["a"],[]],"requirementsPaths":[]}`, "-32602 TOML paths must contain at least one key segment"},
		{"environmentConfig/read", `{"cwd":"file:///tmp","configPaths":[],"requirementsPaths":[[]]}`, "-32602 TOML paths must contain at least one key segment"},
		{"capabilities/discoverV2", `{"cwd":"file:///tmp"}`, `{"plugins":[],"skills":[],"warnings":[]}`},
		{"capabilities/discoverV2", `{}`, "-32602 missing field `cwd`"},
		{"capabilityRoots/discoverV1", `{"roots":[]}`, `{"roots":[]}`},
		{"capabilityRoots/discoverV1", `{}`, "-32602 missing field `roots`"},
		{"capabilityRoots/discoverV1", `{"roots":[{"id":"a","path":"/x"}]}`, "-32602 invalid URI: relative URL without a base"},
		{"capabilityRoots/discoverV1", `{"roots":[` + strings.Repeat(`{"id":"a","path":"$D"},`, maxCapabilityRoots) + `{"id":"a","path":"$D"}]}`,
			"-32600 capability root discovery accepts at most 128 roots"},
		{"capabilityRoots/discoverV1", `{"roots":[{"id":"a","path":"$D/skills"}]}`,
			`{"roots":[{"id":"a","path":"$D/skills","plugin":null,"skills":[{"instructions":{"path":"$D/skills/foo/SKILL.md","contents":"body"},"metadata":null}],"namespaceManifests":[],"warnings":[],"error":null}]}`},
		{"capabilityRoots/discoverV1", `{"roots":[{"id":"b","path":"$D/nope"}]}`,
			`{"roots":[{"id":"b","path":"$D/nope","plugin":null,"skills":[],"namespaceManifests":[],"warnings":[],"error":"failed to inspect capability root $D/nope: No such file or directory (os error 2)"}]}`},
		{"capabilityRoots/discoverV1", `{"roots":[{"id":"c","path":"$D/skills/foo/SKILL.md"}]}`,
			`{"roots":[{"id":"c","path":"$D/skills/foo/SKILL.md","plugin":null,"skills":[],"namespaceManifests":[],"warnings":[],"error":"capability root $D/skills/foo/SKILL.md is not a directory"}]}`},
	} {
		params := strings.ReplaceAll(tt.params, "$D", fileuri.Format(dir))
		want := strings.ReplaceAll(tt.want, "$D", fileuri.Format(dir))
		result, ok, err := environmentMethod(tt.method, json.RawMessage(params), env)
		if !ok {
			t.Fatalf("%s is unknown", tt.method)
		}
		if got := answerText(t, result, err); got != want {
			t.Errorf("%s %s\n got %s\nwant %s", tt.method, params, got, want)
		}
	}
	if _, ok, err := environmentMethod("environment/list", nil, env); ok || err != nil {
		t.Errorf("environment/list: %v, %v", ok, err)
	}
}

func FuzzEnvironmentParams(f *testing.F) {
	methods := []string{"environment/status", "environment/info", "environmentConfig/read", "capabilities/discoverV2", "capabilityRoots/discoverV1"}
	f.Add(uint(2), []byte(`{"cwd":"file:///x","configPaths":[["a"]],"requirementsPaths":[]}`))
	f.Add(uint(4), []byte(`{"roots":[{"id":"a","path":"file:///nonexistent","sandbox":null}]}`))
	f.Fuzz(func(t *testing.T, which uint, params []byte) {
		if which%5 == 4 && strings.Contains(string(params), "file") && !strings.Contains(string(params), "nonexistent") {
			return // use only paths that do not exist
		}
		_, ok, err := environmentMethod(methods[which%5], params, environment{})
		var e *rpc.Error
		if !ok || err != nil && !errors.As(err, &e) {
			t.Fatalf("%v %v", ok, err)
		}
	})
}
