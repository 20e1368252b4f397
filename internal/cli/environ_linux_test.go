package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// noRequests is a client of a server that sends no requests.
type noRequests struct{ rpc.Handler }

// readFile reads a file of a server as codex does.
func readFile(t *testing.T, url, path string) string {
	t.Helper()
	ws, _, err := websocket.Dial(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := rpc.NewConn(rpc.WebSocket(ws, "server"))
	go c.Serve(t.Context(), noRequests{})
	defer c.Close()
	var answer struct {
		Data []byte `json:"dataBase64"`
	}
	if err := c.Call(t.Context(), "initialize", map[string]string{"clientName": "test"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Notify("initialized", struct{}{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Call(t.Context(), "fs/readFile", map[string]string{"path": "file://" + path}, &answer); err != nil {
		t.Fatal(err)
	}
	return string(answer.Data)
}

// TestServerHidesItsEnvironment checks that clients of a server cannot read the
// environment of the server and of its keeper, as a file or from a process, and
// that runs inherit from it what they should.
func TestServerHidesItsEnvironment(t *testing.T) {
	t.Setenv("SPOOL_TOKEN", "sesame-token")
	t.Setenv("SERVER_SECRET", "sesame-secret")
	t.Setenv("NORMAL_VARIABLE", "open")
	s := servertest.Start(t, t.TempDir())
	if got := strings.Trim(readFile(t, s.URL, "/proc/self/environ"), "\x00"); got != "" {
		t.Errorf("fs/readFile of /proc/self/environ: %q", got)
	}

	c, err := client.Dial(t.Context(), s.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	run := func(policy spool.EnvPolicy, script string) string {
		t.Helper()
		r, err := spool.Start(t.Context(), c, spool.Spec{Argv: []string{"sh", "-c", script}, EnvPolicy: &policy})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		for e, err := range r.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			out.Write(e.Bytes)
		}
		return out.String()
	}
	// The parent of a process is the keeper.
	script := fmt.Sprintf("cat /proc/%d/environ && cat /proc/$PPID/environ && echo read", s.Pid)
	if got := strings.ReplaceAll(run(spool.EnvPolicy{Inherit: "none", Set: map[string]string{"PATH": "/usr/bin:/bin"}}, script), "\x00", ""); got != "read\n" {
		t.Errorf("a process read %q", got)
	}
	got := run(spool.EnvPolicy{Inherit: "all"}, "env")
	if !strings.Contains(got, "NORMAL_VARIABLE=open\n") || strings.Contains(got, "sesame") {
		t.Errorf("a run inherited %q", got)
	}
	got = run(spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}, "env")
	if !strings.Contains(got, "SERVER_SECRET=sesame-secret\n") || strings.Contains(got, "sesame-token") {
		t.Errorf("a run that asked for everything inherited %q", got)
	}
}
