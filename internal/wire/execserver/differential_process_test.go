package execserver_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

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
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"deny"},{"path":{"type":"path","path":"$D/ws/f"},"access":"deny"},{"path":{"type":"glob_pattern","pattern":"*.env"},"access":"deny"}`,
	"carved": `{"path":{"type":"special","value":{"kind":"root"}},"access":"read"},{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"},` +
		`{"path":{"type":"path","path":"$D/ws/sub"},"access":"read"},{"path":{"type":"path","path":"$D/ws/sub/deep"},"access":"write"}`,
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
		{object(`{"type":"external","network":"restricted"}`, ""), "sandbox restricts the network and not the file system"},
		{object(`{"type":"managed","file_system":{"type":"unrestricted"},"network":"restricted"}`, ""), "sandbox restricts the network and not the file system"},
		{object(restricted(``), ""), "sandbox hides the programs of the system"},
		{object(restricted(processSandboxes["readonly"]), `,"useLegacyLandlock":true`), "useLegacyLandlock"},
		{object(restricted(processSandboxes["workspace"]+`,{"path":{"type":"path","path":"$D/ws/link"},"access":"read"}`), ""), "crosses writable symlink"},
		{object(restricted(processSandboxes["readonly"]+`,{"path":{"type":"glob_pattern","pattern":"sub"},"access":"deny"}`), ""), "cannot be safely expanded"},
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
