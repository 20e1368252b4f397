package execserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
)

func FuzzSandbox(f *testing.F) {
	f.Add([]byte(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`))
	f.Add([]byte(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"glob_pattern","pattern":"**/[a-z]{b,c}*"},"access":"deny"}]},"network":"enabled"},"cwd":"file:///srv","windowsSandboxLevel":"disabled"}`))
	f.Add([]byte(`{"permissions":{"type":"external","network":"enabled"},"windowsSandboxLevel":"elevated"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e *rpc.Error
		if _, err := treeFor(raw, true); err != nil && !errors.As(err, &e) {
			t.Fatalf("%v is not a wire error", err)
		}
		if _, err := processIsolation(raw, "/", false); err != nil && !errors.As(err, &e) {
			t.Fatalf("%v is not a wire error", err)
		}
	})
}

func TestGlobMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"/srv/*.env", "/srv/a.env", true},
		{"/srv/*.env", "/srv/deep/a.env", true}, // a pattern of one element matches at any depth
		{"/srv/*.env", "/srv/a.env/inside", true},
		{"/srv/*.env", "/srv/env", false},
		{"/srv/*.env", "/srv", false},
		{"/srv/*.env", "/other/a.env", false},
		{"/srv/*/a", "/srv/x/a", true},
		{"/srv/*/a", "/srv/x/y/a", false},
		{"/srv/**/a", "/srv/a", true},
		{"/srv/**/a", "/srv/x/y/a", true},
		{"/srv/**", "/srv/x/y", true},
		{"/srv/?.txt", "/srv/a.txt", true},
		{"/srv/?.txt", "/srv/ab.txt", false},
		{"/srv/?.txt", "/srv/é.txt", true},
		{"/srv/[a-c]x", "/srv/bx", true},
		{"/srv/[!a-c]x", "/srv/bx", false},
		{"/srv/[!a-c]x", "/srv/dx", true},
		{"/srv/[", "/srv/[", true},
		{"/srv/*.{pem,key}", "/srv/a.key", true},
		{"/srv/*.{pem,key}", "/srv/a.crt", false},
		{`/srv/*\*`, "/srv/a*", true},
		{`/srv/*\*`, "/srv/ab", false},
		{"/srv/*.a+b", "/srv/x.a+b", true},
		{"/srv/*}", "/srv/x}", true},
	} {
		g, err := newGlob(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
		} else if got := g.matches(tt.path); got != tt.want {
			t.Errorf("%s matches %s: %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
	}
	for _, pattern := range []string{"/srv/x", "/*.env", "/"} {
		if _, err := newGlob(pattern); err == nil {
			t.Errorf("%s is accepted", pattern)
		}
	}
}

// TestProcessIsolation checks which isolation a process gets for a sandbox.
func TestProcessIsolation(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) (paths []string) {
		for _, name := range names {
			paths = append(paths, filepath.Join(dir, name))
		}
		return paths
	}
	for _, name := range []string{"ws/.git/config", "ws/sub/deep/f", "ws/a.env", "ws/sub/b.env", "other/f"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("other", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	sorted := func(lists ...[]string) []string { return slices.Sorted(slices.Values(slices.Concat(lists...))) }
	t.Setenv("TMPDIR", filepath.Join(dir, "other"))
	const (
		root    = `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}`
		project = `{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}`
		tmpdir  = `{"path":{"type":"special","value":{"kind":"tmpdir"}},"access":"write"}`
		minimal = `{"path":{"type":"special","value":{"kind":"minimal"}},"access":"read"}`
		globs   = `{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}`
	)
	protected := at("ws/.agents", "ws/.aws", "ws/.codex", "ws/.git")
	for _, tt := range []struct {
		name, entries, network string
		want                   *spool.Isolation
	}{
		{"all", `{"path":{"type":"special","value":{"kind":"root"}},"access":"write"}`, "enabled", nil},
		{"reads", root, "enabled", &spool.Isolation{Profile: "read-only", HostTmp: true}},
		{"reads without network", root, "restricted", &spool.Isolation{Profile: "read-only", HostTmp: true, Guarantees: []string{"N0"}}},
		{"workspace", root + "," + project, "restricted", &spool.Isolation{Profile: "workspace-write", HostTmp: true, Guarantees: []string{"N0"},
			Writable: at("ws"), Protected: protected}},
		{"two roots", root + "," + project + "," + tmpdir, "enabled", &spool.Isolation{Profile: "workspace-write", HostTmp: true,
			Writable: at("other", "ws"), Protected: append(at("other/.agents", "other/.aws", "other/.codex", "other/.git"), protected...)}},
		{"missing root", root + "," + allow(filepath.Join(dir, "none"), "write"), "enabled", &spool.Isolation{Profile: "read-only", HostTmp: true}},
		{"carved", root + "," + project + "," + allow(filepath.Join(dir, "ws/sub"), "read") + "," + allow(filepath.Join(dir, "ws/none"), "read"), "enabled",
			&spool.Isolation{Profile: "workspace-write", HostTmp: true, Writable: at("ws"), Protected: append(slices.Clone(protected), at("ws/none", "ws/sub")...)}},
		{"denied", root + "," + project + "," + allow(filepath.Join(dir, "ws/sub"), "deny") + "," + allow(filepath.Join(dir, "ws/none"), "deny"), "enabled",
			&spool.Isolation{Profile: "workspace-write", HostTmp: true, Writable: at("ws"), Protected: append(slices.Clone(protected), at("ws/none")...), Hidden: at("ws/sub")}},
		{"patterns", root + "," + globs, "enabled", &spool.Isolation{Profile: "read-only", HostTmp: true, Hidden: at("ws/a.env", "ws/sub/b.env")}},
		{"some reads", minimal + "," + allow(filepath.Join(dir, "other"), "read"), "enabled",
			&spool.Isolation{Profile: "read-only", HostTmp: true, Guarantees: []string{"R"}, Bare: true, Readable: sorted(existing(platformPaths), at("other"))}},
		{"no programs", allow(filepath.Join(dir, "link"), "read") + "," + project, "enabled",
			&spool.Isolation{Profile: "workspace-write", HostTmp: true, Guarantees: []string{"R"}, Bare: true, Readable: at("link"), Writable: at("ws"), Protected: protected}},
		{"nothing", "", "restricted", &spool.Isolation{Profile: "read-only", HostTmp: true, Guarantees: []string{"N0", "R"}, Bare: true}},
		{"linked pattern", root + `,{"path":{"type":"glob_pattern","pattern":"` + dir + `/lin?"},"access":"deny"}`, "enabled",
			&spool.Isolation{Profile: "read-only", HostTmp: true, Hidden: at("other")}},
	} {
		raw := json.RawMessage(fmt.Sprintf(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[%s]},"network":%q},`+
			`"cwd":"file://%s/ws","workspaceRoots":["file://%s/ws"],"windowsSandboxLevel":"disabled"}`, tt.entries, tt.network, dir, dir))
		got, err := processIsolation(raw, dir, false)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestWorkingDirectoryInSandbox checks where a process starts whose sandbox may hide
// its working directory.
func TestWorkingDirectoryInSandbox(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"ws/sub", "home"} {
		if err := os.MkdirAll(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		i    *spool.Isolation
		want string
	}{
		{"no isolation", nil, at("ws")},
		{"all can be read", &spool.Isolation{}, at("ws")},
		{"writable", &spool.Isolation{Bare: true, Writable: []string{dir}}, at("ws")},
		{"on the way to what can be read", &spool.Isolation{Bare: true, Readable: []string{at("ws/sub")}}, at("ws")},
		{"hidden", &spool.Isolation{Hidden: []string{at("ws")}}, at("home")},
		{"in a hidden directory", &spool.Isolation{Hidden: []string{dir}}, "/"},
		{"in a hidden directory, on the way to what is writable", &spool.Isolation{Hidden: []string{dir}, Writable: []string{at("ws/sub")}}, at("ws")},
		{"in a hidden directory, writable", &spool.Isolation{Hidden: []string{dir}, Writable: []string{at("ws")}}, at("ws")},
		{"neither it nor the home directory can be read", &spool.Isolation{Bare: true, Readable: []string{"/usr"}}, "/"},
		{"the home directory can be read", &spool.Isolation{Bare: true, Readable: []string{at("home")}}, at("home")},
	} {
		spec := spool.Spec{Cwd: at("ws"), Env: map[string]string{"HOME": at("home")}, Isolation: tt.i}
		if settle(&spec); spec.Cwd != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, spec.Cwd, tt.want)
		}
	}
}

// restrict returns a sandbox object with entries.
func restrict(entries string) json.RawMessage {
	return json.RawMessage(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[` + entries +
		`]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`)
}

// allow returns an entry for a path.
func allow(path, access string) string {
	return `{"path":{"type":"path","path":"file://` + path + `"},"access":"` + access + `"}`
}
