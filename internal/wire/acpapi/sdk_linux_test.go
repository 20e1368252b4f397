package acpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	acp "github.com/coder/acp-go-sdk"

	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/internal/servertest"
)

// journey is a client of an SDK that uses "spool acp" in front of a real agent.
type journey struct {
	Program string   `json:"program"`
	Args    []string `json:"args"`
	Cwd     string   `json:"cwd"`
	env     []string
}

// seen is what the client saw.
type seen struct {
	Agent  string   `json:"agent"`
	Stop   string   `json:"stop"`
	Asked  []string `json:"asked"`
	Listed []string `json:"listed"`
	Said   string   `json:"said"` // by the agent, live and loaded
	Live   []string `json:"live"`
	Loaded []string `json:"loaded"`
}

// TestSDKs has the three public SDKs, as clients, drive real agents on a scripted model
// through a turn with a command that needs a permission, and load the session again.
func TestSDKs(t *testing.T) {
	for _, tt := range []struct {
		sdk, agent string
		flags      []string
		run        func(*testing.T, *journey) seen
	}{
		{"typescript", agenttest.Codex, []string{"--permissions=untrusted", "--sandbox=danger-full-access"}, typescript},
		{"python", agenttest.Claude, nil, python},
		{"go", agenttest.Codex, []string{"--permissions=untrusted", "--sandbox=danger-full-access"}, golang},
	} {
		t.Run(tt.sdk, func(t *testing.T) {
			command := "echo made >made.txt"
			if tt.sdk != "go" { // with an MCP server that leaves a file
				command = "until [ -s probe.txt ]; do sleep 0.1; done; " + command
			}
			m, err := modeltest.New(modeltest.ByTurn(modeltest.Shell(command), modeltest.Say("All done.")))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			env := agenttest.Home(t, tt.agent, m)
			state := servertest.StateDir(t)
			j := &journey{Program: servertest.Binary(t), Args: append([]string{"acp", "--state=" + state, "--agent=" + tt.agent}, tt.flags...), Cwd: t.TempDir()}
			for name, value := range env {
				j.env = append(j.env, name+"="+value)
			}
			got := tt.run(t, j)
			if err := m.Err(); err != nil {
				t.Errorf("model: %v", err)
			}
			if made, err := os.ReadFile(filepath.Join(j.Cwd, "made.txt")); err != nil || string(made) != "made\n" {
				t.Errorf("the command did not run: %q, %v", made, err)
			}
			// The MCP server of the editor got its arguments and its variables.
			if probe, err := os.ReadFile(filepath.Join(j.Cwd, "probe.txt")); tt.sdk != "go" && (err != nil || string(probe) != "\"x\" secret\n") {
				t.Errorf("the MCP server left %q, %v", probe, err)
			}
			if got.Agent != "Spool ("+tt.agent+")" || got.Stop != "end_turn" || got.Said != "All done.All done." || !slices.Equal(got.Asked, []string{"execute"}) || !slices.Equal(got.Listed, []string{"Go."}) {
				t.Errorf("the client saw %+v", got)
			}
			want := append([]string{"user_message_chunk"}, got.Live...) // what comes after the turn may be missing
			if len(got.Loaded) < len(want) || !slices.Equal(got.Loaded[:len(want)], want) {
				t.Errorf("the client loaded\n%q, and saw live\n%q", got.Loaded, got.Live)
			}
			for _, kind := range []string{"session_info_update", "tool_call", "tool_call_update", "agent_message_chunk"} {
				if !slices.Contains(got.Live, kind) {
					t.Errorf("the client saw no %s: %q", kind, got.Live)
				}
			}
		})
	}
}

// script runs a program that reads a script and prints what it saw.
func (j *journey) script(t *testing.T, file, program string, args ...string) seen {
	t.Helper()
	source, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = source.Close() }()
	test, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(j.env, "SPOOL_TEST_ACP="+string(test))
	cmd.Stdin = source
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var got seen
	if err != nil || json.Unmarshal(out, &got) != nil {
		t.Fatalf("%s: %v\n%s\n%s", file, err, out, &stderr)
	}
	return got
}

func typescript(t *testing.T, j *journey) seen {
	t.Helper()
	run, err := sdkTS.Cached()
	if err != nil {
		t.Fatal(err)
	}
	return j.script(t, "testdata/client.mjs", run)
}

func python(t *testing.T, j *journey) seen {
	t.Helper()
	python, err := pytest.Environment([]string{"agent-client-protocol==0.12.1"}, "acp")
	if err != nil {
		t.Fatal(err)
	}
	return j.script(t, "testdata/client.py", python, "-")
}

// goClient is a client of the SDK for Go.
type goClient struct {
	acp.Client // what is not used

	mu      sync.Mutex
	said    string
	asked   []string
	updates []string
	more    chan struct{}
}

// RequestPermission implements [acp.Client].
func (c *goClient) RequestPermission(_ context.Context, p acp.RequestPermissionRequest) (acp.RequestPermissionResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, string(*p.ToolCall.Kind))
	for _, o := range p.Options {
		if o.Kind == acp.PermissionOptionKindAllowOnce {
			return acp.RequestPermissionResponse{Outcome: acp.NewRequestPermissionOutcomeSelected(o.OptionId)}, nil
		}
	}
	return acp.RequestPermissionResponse{}, errors.New("nothing allows it")
}

// SessionUpdate implements [acp.Client].
func (c *goClient) SessionUpdate(_ context.Context, n acp.SessionNotification) error {
	data, err := json.Marshal(n.Update)
	if err != nil {
		return err
	}
	var u struct {
		Kind string `json:"sessionUpdate"`
	}
	if err := json.Unmarshal(data, &u); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.updates = append(c.updates, u.Kind)
	if m := n.Update.AgentMessageChunk; m != nil {
		c.said += m.Content.Text.Text
	}
	close(c.more)
	c.more = make(chan struct{})
	return nil
}

// told waits for so many updates, and returns them.
func (c *goClient) told(t *testing.T, n int) []string {
	t.Helper()
	timeout := time.After(patience)
	for {
		c.mu.Lock()
		updates, more := slices.Clone(c.updates), c.more
		c.mu.Unlock()
		if len(updates) >= n {
			return updates
		}
		select {
		case <-more:
		case <-timeout:
			t.Fatalf("%d updates, want %d: %s", len(updates), n, strings.Join(updates, " "))
		}
	}
}

// connect starts the agent.
func (j *journey) connect(t *testing.T, c *goClient) (conn *acp.ClientSideConnection, end func()) {
	t.Helper()
	c.more = make(chan struct{})
	cmd := exec.CommandContext(t.Context(), j.Program, j.Args...)
	cmd.Env, cmd.Dir = j.env, j.Cwd
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, w := io.Pipe()
	var stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn = acp.NewClientSideConnection(c, in, out)
	return conn, func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
			t.Errorf("spool acp: %v\n%s", err, &stderr)
		}
		_ = w.Close()
		<-conn.Done()
	}
}

func golang(t *testing.T, j *journey) (got seen) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c := &goClient{}
	conn, end := j.connect(t, c)
	info, err := conn.Initialize(ctx, acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber})
	if err != nil {
		t.Fatal(err)
	}
	got.Agent = *info.AgentInfo.Title
	session, err := conn.NewSession(ctx, acp.NewSessionRequest{Cwd: j.Cwd, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	done, err := conn.Prompt(ctx, acp.PromptRequest{SessionId: session.SessionId, Prompt: []acp.ContentBlock{acp.TextBlock("Go.")}})
	if err != nil {
		t.Fatal(err)
	}
	got.Stop = string(done.StopReason)
	end()
	got.Live, got.Asked, got.Said = c.told(t, 0), c.asked, c.said

	c = &goClient{}
	conn, end = j.connect(t, c)
	defer end()
	if _, err := conn.Initialize(ctx, acp.InitializeRequest{ProtocolVersion: acp.ProtocolVersionNumber}); err != nil {
		t.Fatal(err)
	}
	list, err := conn.ListSessions(ctx, acp.ListSessionsRequest{Cwd: &j.Cwd})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Sessions {
		got.Listed = append(got.Listed, *s.Title)
	}
	if _, err := conn.LoadSession(ctx, acp.LoadSessionRequest{SessionId: session.SessionId, Cwd: j.Cwd, McpServers: []acp.McpServer{}}); err != nil {
		t.Fatal(err)
	}
	got.Loaded = c.told(t, len(got.Live)+1)
	got.Said += c.said
	if _, err := conn.CloseSession(ctx, acp.CloseSessionRequest{SessionId: session.SessionId}); err != nil {
		t.Fatal(err)
	}
	return got
}
