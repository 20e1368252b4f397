package execserver_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// ended is what a client sees of a process.
type ended struct {
	SandboxType string
	Error       any
	Output      string
	ExitCode    int
	Denied      bool
}

// sandboxes of processes, by name.
var processSandboxes = map[string]string{
	"workspace": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}`,
	"readonly":  `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}`,
	"denied": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"deny"},{"path":{"type":"path","path":"$D/ws/f"},"access":"deny"}`,
	"globbed": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"glob_pattern","pattern":"*.env"},"access":"deny"}`,
	// With ripgrep on the machine codex cannot start a process here: it hides the
	// directory, and then wants to hide a file in it.
	"both": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"deny"},{"path":{"type":"path","path":"$D/ws/f"},"access":"deny"},{"path":{"type":"glob_pattern","pattern":"*.env"},"access":"deny"}`,
	"carved": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"read"},{"path":{"type":"path","path":"$D/ws/sub/deep"},"access":"write"}`,
	"closed": `{"path":{"type":"special","value":{"kind":"minimal"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}`,
	"roots": `{"path":{"type":"special","value":{"kind":"minimal"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"read"},` +
		`{"path":{"type":"path","path":"$D/outside/o"},"access":"read"}`,
	"empty": ``,
	"whole": `{"path":{"type":"special","value":{"kind":"root"}},"access":"write"}`,
	"behind": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D"},"access":"deny"}`,
	"away": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"path","path":"$D/ws"},"access":"deny"}`,
	"reopened": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"none"},{"path":{"type":"path","path":"$D/ws/sub/deep"},"access":"write"}`,
	"unopened": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"none"},{"path":{"type":"path","path":"$D/ws/sub/deep"},"access":"read"}`,
	"everything": `{"path":{"type":"special","value":{"kind":"root"}},"access":"write"},{"path":{"type":"path","path":"$D/outside/h"},"access":"read"},` +
		`{"path":{"type":"path","path":"$D/outside/o"},"access":"deny"},{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}`,
	"anywhere": `{"path":{"type":"special","value":{"kind":"minimal"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"glob_pattern","pattern":"**/*.env"},"access":"deny"}`,
}

// processObject returns a sandbox object, or null.
func processObject(name, network string) string {
	entries, ok := processSandboxes[name]
	if !ok {
		return "null"
	}
	return fmt.Sprintf(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[%s]},"network":%q},`+
		`"cwd":"$D/ws","workspaceRoots":["$D/ws"],"windowsSandboxLevel":"disabled"}`, entries, network)
}

// runInSandbox runs a script in the directory ws and returns its end.
func (p *peer) runInSandbox(t *testing.T, dir, id, script, sandbox string) ended {
	t.Helper()
	argv, err := json.Marshal([]string{"/bin/sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	params := fmt.Sprintf(`{"processId":%q,"argv":%s,"cwd":"$D/ws","env":{"PATH":"/usr/bin:/bin","LC_ALL":"C"},"tty":false,"arg0":"named","sandbox":%s}`, id, argv, sandbox)
	answer := p.ask(t, "process/start", strings.ReplaceAll(params, "$D", fileuri.Format(dir)))
	m, _ := answer.(map[string]any)
	if _, failed := m["code"]; failed {
		return ended{Error: relative(answer, dir)}
	}
	var r struct {
		Chunks []struct {
			Chunk string `json:"chunk"`
		} `json:"chunks"`
		NextSeq       int  `json:"nextSeq"`
		ExitCode      int  `json:"exitCode"`
		Closed        bool `json:"closed"`
		SandboxDenied bool `json:"sandboxDenied"`
	}
	var text strings.Builder
	for after := 0; !r.Closed; after = r.NextSeq - 1 {
		b, err := json.Marshal(p.ask(t, "process/read", fmt.Sprintf(`{"processId":%q,"afterSeq":%d,"waitMs":60000}`, id, after)))
		if err != nil {
			t.Fatal(err)
		}
		r.Chunks = nil
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Chunks {
			b, err := base64.StdEncoding.DecodeString(c.Chunk)
			if err != nil {
				t.Fatal(err)
			}
			text.Write(b)
		}
	}
	return ended{SandboxType: fmt.Sprint(m["sandboxType"]), Output: strings.ReplaceAll(text.String(), dir, "$D"), ExitCode: r.ExitCode, Denied: r.SandboxDenied}
}

// TestProcessSameAsCodexInSandbox runs scripts in sandboxes, on our server and on
// the real codex exec-server, each with files of its own.
func TestProcessSameAsCodexInSandbox(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	m := newMachine(t)
	ours, codex := m.connect(t)
	writeTree(t, m.dir, map[string]string{"tmp/keep": ""})
	ourDir, codexDir := filepath.Join(m.dir, "ours"), filepath.Join(m.dir, "real")
	newSandboxTree(t, ourDir)
	newSandboxTree(t, codexDir)
	for i, tt := range []struct{ sandbox, script string }{
		{"", "echo $0; cat ../outside/o"},
		{"workspace", "echo $0; echo new >new; cat new ../outside/o; exit 7"},
		{"workspace", "echo x >../outside/o"},
		{"workspace", "echo x >link/new || echo x >.git/config || mkdir .codex || rm -r .git"},
		{"workspace", "ln ../outside/o hard2"},
		{"workspace", "echo through >inner; cat f; kill -9 $$"},
		{"readonly", "cat f; echo x >f"},
		{"readonly", "exit 1"},
		{"denied", "cat f; cat sub/b.env; ls sub"},
		{"globbed", "cat f; cat a.env"},
		{"carved", "echo x >sub/deep/new; cat sub/deep/new; echo x >sub/new"},
		{"closed", "cat f; echo x >kept; cat ../outside/o; ls ..; cat link/o; cat filelink; head -c 5 /etc/passwd; ls /home /var /srv /sys; echo x >/etc/x"},
		{"roots", "cat f; cat ../outside/o ../outside/h; ls .. ../outside; cat filelink; echo x >f; echo x >../outside/o"},
		{"behind", "pwd; cat f; ls ..; cat ../outside/o; echo x >kept2"},
		{"away", "pwd; cat f"},
		{"reopened", "ls sub; cat sub/b.env; cat sub/deep/x; echo x >sub/deep/kept; echo x >sub/new; mv sub other"},
		{"unopened", "ls sub; ls sub/deep; cat sub/deep/x; echo x >sub/deep/new"},
		{"everything", "cat ../outside/o ../outside/h; echo x >../outside/kept; echo x >../outside/h; cat a.env; cat sub/b.env; rm ../outside/o; mkdir .git/kept"},
		{"anywhere", "cat f; cat a.env; cat sub/b.env; cat ../outside/o; rm a.env; echo x >later.env; cat later.env"},
	} {
		id, sandbox := fmt.Sprintf("p%d", i), processObject(tt.sandbox, "restricted")
		script := "exec 2>&1; " + tt.script // the order between two pipes is not defined
		want, got := codex.runInSandbox(t, codexDir, id, script, sandbox), ours.runInSandbox(t, ourDir, id, script, sandbox)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s (-codex +spool):\n%s", tt.sandbox, tt.script, diff)
		}
	}
	// Without workspace roots nothing is the workspace, and the working directory is
	// none by itself.
	const roots = `"workspaceRoots":["$D/ws"],`
	for i, tt := range []struct{ sandbox, roots, script string }{
		{"workspace", `"workspaceRoots":[],`, "pwd; cat f; echo x >f; echo x >unkept; echo x >../outside/o"},
		{"workspace", "", "pwd; cat f; echo x >f; echo x >unkept; echo x >../outside/o"},
		{"roots", `"workspaceRoots":[],`, "pwd; cat f"},
		{"denied", `"workspaceRoots":[],`, "cat f; cat sub/b.env; echo x >unkept"},
	} {
		id, sandbox := fmt.Sprintf("rootless%d", i), processObject(tt.sandbox, "restricted")
		if !strings.Contains(sandbox, roots) {
			t.Fatalf("%s names no workspace roots", sandbox)
		}
		sandbox = strings.Replace(sandbox, roots, tt.roots, 1)
		script := "exec 2>&1; " + tt.script
		want, got := codex.runInSandbox(t, codexDir, id, script, sandbox), ours.runInSandbox(t, ourDir, id, script, sandbox)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s with %q: %s (-codex +spool):\n%s", tt.sandbox, tt.roots, tt.script, diff)
		}
	}
	// The same for a file method.
	for _, name := range []string{"workspace", "roots"} {
		object := strings.Replace(processObject(name, "restricted"), roots, `"workspaceRoots":[],`, 1)
		for method, more := range map[string]string{"fs/readFile": "", "fs/writeFile": `,"dataBase64":"eA=="`} {
			params := `{"path":"$D/ws/f","sandbox":` + object + more + `}`
			want := relative(codex.ask(t, method, strings.ReplaceAll(params, "$D", fileuri.Format(codexDir))), codexDir)
			got := relative(ours.ask(t, method, strings.ReplaceAll(params, "$D", fileuri.Format(ourDir))), ourDir)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s in %s without workspace roots (-codex +spool):\n%s", method, name, diff)
			}
		}
	}
	// Both start nothing where there are no programs. Codex starts its helper, which
	// says so.
	got := ours.runInSandbox(t, ourDir, "empty", "echo ran", processObject("empty", "restricted"))
	if want := (ended{Error: map[string]any{"code": -32603.0, "message": "No such file or directory (os error 2)"}}); !cmp.Equal(got, want) {
		t.Errorf("without programs: %+v, want %+v", got, want)
	}
	want := codex.runInSandbox(t, codexDir, "empty", "echo ran", processObject("empty", "restricted"))
	if want.ExitCode == 0 || !strings.Contains(want.Output, `failed to exec "/bin/sh": No such file or directory (os error 2)`) {
		t.Errorf("without programs codex answers %+v", want)
	}
	// Codex finds the files of a pattern in directories below only if ripgrep is installed.
	got = ours.runInSandbox(t, ourDir, "below", "cat sub/b.env", processObject("globbed", "restricted"))
	if want := (ended{SandboxType: "linuxSeccomp", ExitCode: 1, Denied: true, Output: "cat: sub/b.env: Permission denied\n"}); got != want {
		t.Errorf("a file of a pattern in a directory: %+v, want %+v", got, want)
	}
	got = ours.runInSandbox(t, ourDir, "both", "cat f; cat sub/b.env; ls sub; cat a.env", processObject("both", "restricted"))
	want = ended{SandboxType: "linuxSeccomp", ExitCode: 1, Denied: true,
		Output: "cat: a.env: Permission denied\ncat: f: Permission denied\ncat: sub/b.env: Permission denied\nls: cannot open directory 'sub': Permission denied\n"}
	if got.Output = sortLines(got.Output); got != want {
		t.Errorf("a denied directory with a denied file: %+v, want %+v", got, want)
	}
	// Both remove the directories that protect missing names a moment after the
	// end of a process.
	protects := cmpopts.IgnoreMapEntries(func(name, kind string) bool {
		return kind == fs.ModeDir.String() && slices.Contains([]string{".git", ".agents", ".codex", ".aws"}, filepath.Base(name))
	})
	if diff := cmp.Diff(describeTree(t, codexDir), describeTree(t, ourDir), protects); diff != "" {
		t.Errorf("the files (-codex +spool):\n%s", diff)
	}
}

func sortLines(text string) string { return strings.Join(slices.Sorted(strings.Lines(text)), "") }

// TestProcessWithoutNetwork checks that a process whose sandbox restricts the
// network cannot connect, and that it is seen as denied.
func TestProcessWithoutNetwork(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	newSandboxTree(t, dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	connected := make(chan struct{}, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
			connected <- struct{}{}
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("exec /bin/bash -c 'echo >/dev/tcp/127.0.0.1/%s && echo connected'", port)
	url, _ := newServer(t, execserver.Options{})
	p := dialPeer(t, url)
	p.initialize(t, nil)

	if got := p.runInSandbox(t, dir, "open", script, processObject("workspace", "enabled")); got.Output != "connected\n" {
		t.Errorf("with the network: %+v", got)
	} else {
		<-connected
	}
	if got := p.runInSandbox(t, dir, "closed", script, processObject("workspace", "restricted")); got.ExitCode == 0 || got.SandboxType != "linuxSeccomp" {
		t.Errorf("without the network: %+v", got)
	}
	// Also where it is all that is restricted.
	for i, permissions := range []string{`{"type":"external","network":"restricted"}`, `{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}`} {
		object := `{"permissions":` + permissions + `,"cwd":"$D/ws","workspaceRoots":["$D/ws"],"windowsSandboxLevel":"disabled"}`
		got := p.runInSandbox(t, dir, fmt.Sprintf("only%d", i), "echo x >../outside/o && cat ../outside/o && "+script, object)
		if got.ExitCode == 0 || !strings.HasPrefix(got.Output, "x\n") {
			t.Errorf("%s: %+v", permissions, got)
		}
	}
	unreachable := "exec /bin/bash -c 'echo >/dev/tcp/192.0.2.1/80'"
	if got := p.runInSandbox(t, dir, "far", unreachable, processObject("workspace", "restricted")); got.ExitCode == 0 || !got.Denied {
		t.Errorf("without the network, far away: %+v", got)
	}
	select {
	case <-connected:
		t.Error("a process connected")
	default:
	}
}

// TestRefusesSandboxOfProcess checks that a start whose sandbox cannot be enforced
// is refused.
func TestRefusesSandboxOfProcess(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	newSandboxTree(t, dir)
	url, _ := newServer(t, execserver.Options{})
	p := dialPeer(t, url)
	p.initialize(t, nil)
	object := func(permissions, more string) string {
		return `{"permissions":` + permissions + `,"cwd":"$D/ws","workspaceRoots":["$D/ws"],"windowsSandboxLevel":"disabled"` + more + `}`
	}
	restricted := func(entries string) string {
		return `{"type":"managed","file_system":{"type":"restricted","entries":[` + entries + `]},"network":"restricted"}`
	}
	for i, tt := range []struct{ sandbox, want string }{
		{object(restricted(``), ""), "No such file or directory (os error 2)"},
		{object(restricted(processSandboxes["readonly"]), `,"useLegacyLandlock":true`), "useLegacyLandlock"},
		{object(restricted(processSandboxes["workspace"]+`,{"path":{"type":"path","path":"$D/ws/link"},"access":"read"}`), ""), "crosses writable symlink"},
		{object(restricted(processSandboxes["readonly"]+`,{"path":{"type":"glob_pattern","pattern":"sub"},"access":"deny"}`), ""), "cannot be safely expanded"},
		{object(restricted(processSandboxes["workspace"]+`,{"path":{"type":"glob_pattern","pattern":"*link"},"access":"deny"}`), ""), "deny-read path $D/ws/filelink because it crosses writable symlink"},
	} {
		got := p.runInSandbox(t, dir, fmt.Sprintf("p%d", i), "echo ran", tt.sandbox)
		if text := fmt.Sprint(got.Error); !strings.Contains(text, tt.want) {
			t.Errorf("%s\n got %+v\nwant %s", tt.sandbox, got, tt.want)
		}
	}
	for i, sandbox := range []string{
		object(`{"type":"disabled"}`, ""), object(`{"type":"external","network":"enabled"}`, ""),
		object(`{"type":"managed","file_system":{"type":"unrestricted"},"network":"enabled"}`, ""),
	} {
		got := p.runInSandbox(t, dir, fmt.Sprintf("q%d", i), "echo x >new && echo ran", sandbox)
		if want := (ended{SandboxType: "linuxSeccomp", Output: "ran\n"}); got != want {
			t.Errorf("%s\n got %+v\nwant %+v", sandbox, got, want)
		}
	}
}
