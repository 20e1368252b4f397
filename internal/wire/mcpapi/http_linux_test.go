package mcpapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// byName takes the token of a request for the name of its subject.
type byName map[string]access.Scopes

// Authenticate implements [access.Authenticator].
func (b byName) Authenticate(r *http.Request) (*access.Subject, error) {
	name := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	scopes, ok := b[name]
	if !ok {
		return nil, &access.Refusal{Status: http.StatusUnauthorized, Text: "who are you?"}
	}
	return &access.Subject{Name: name, Scopes: scopes}, nil
}

// Valid implements [access.Authenticator].
func (byName) Valid(*access.Subject) error { return nil }

// serveHTTP serves a backend at an address.
func serveHTTP(t *testing.T, b spool.Backend) string {
	t.Helper()
	api := httpapi.New(httpapi.Options{
		Backend: b, Gate: &access.Gate{},
		Auth: byName{"alice": access.DefaultScopes(), "bob": access.DefaultScopes(), "reader": {access.Read}, "none": {}},
		MCP:  mcpapi.NewHandler(mcpapi.Options{Env: &spool.EnvPolicy{Inherit: "core"}, Heartbeat: 20 * time.Millisecond}).Serve,
	})
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close(0)
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/mcp"
}

// withToken adds a token to requests.
type withToken struct {
	token string
	http.Transport
}

// RoundTrip implements [http.RoundTripper].
func (w *withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.Transport.RoundTrip(r)
}

// dial connects a client over HTTP.
func dial(t *testing.T, url, token, version string, options *mcp.ClientOptions) *client {
	t.Helper()
	transport := &withToken{token: token}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, options).Connect(t.Context(),
		&mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: transport}},
		&mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		transport.CloseIdleConnections()
	})
	return &client{session, t}
}

// TestHTTP uses the tools over HTTP: each subject has its runs and the tools of its
// scopes.
func TestHTTP(t *testing.T) {
	url := serveHTTP(t, openHost(t))
	for _, version := range versions {
		alice := dial(t, url, "alice", version, nil)
		v, _ := alice.call("run_command", args{"command": "echo hello; read x; echo $x", "tty": true, "until": "output", "wait_ms": 50_000})
		again := dial(t, url, "alice", version, nil) // no session is needed
		if v, _ = again.call("send_input", args{"run": v.Run, "text": "bye\n", "until": "end", "wait_ms": 50_000}); !strings.Contains(v.Text, "bye") || v.State != spool.StateClosed {
			t.Errorf("%s: the run is %+v", version, v)
		}
		if text := dial(t, url, "bob", version, nil).fails("read_run", args{"run": v.Run}); !strings.Contains(text, "not found") {
			t.Errorf("%s: bob reads %q", version, text)
		}
		reader := dial(t, url, "reader", version, nil)
		var names []string
		for tool, err := range reader.Tools(t.Context(), nil) {
			if err != nil {
				t.Fatal(err)
			}
			names = append(names, tool.Name)
		}
		if want := []string{"list_runs", "read_run"}; !slices.Equal(names, want) {
			t.Errorf("%s: a reader has %q, want %q", version, names, want)
		}
		if got, err := reader.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_command", Arguments: args{"command": "true"}}); err == nil && !got.IsError {
			t.Errorf("%s: a reader started %+v", version, got)
		}
	}
}

// panicking is a backend that panics when it starts a run.
type panicking struct{ spool.Backend }

func (panicking) Start(context.Context, spool.Spec) (spool.Info, error) { panic("armed") }

// TestHTTPOfABackendThatPanics checks that a call whose tool panics is answered, and that
// the program goes on.
func TestHTTPOfABackendThatPanics(t *testing.T) {
	c := dial(t, serveHTTP(t, panicking{openHost(t)}), "alice", versions[0], nil)
	if result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "run_command", Arguments: args{"command": "true"}}); err == nil || !strings.Contains(err.Error(), "internal error") {
		t.Errorf("a tool that panics: %+v, %v", result, err)
	}
	if result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_runs", Arguments: args{}}); err != nil || result.IsError {
		t.Errorf("another tool: %+v, %v", result, err)
	}
}

// TestHTTPQuestions asks the user of a client over HTTP, where a result asks; an older
// client, which the server cannot call, gets the question.
func TestHTTPQuestions(t *testing.T) {
	url := serveHTTP(t, openHost(t))
	for _, version := range versions {
		c := dial(t, url, "alice", version, asking(func(*mcp.ElicitParams) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"answer": "blue"}}, nil
		}))
		v, text := c.call("python", args{"code": "print('so', input('Which? '))", "session": strings.ReplaceAll(version, "-", ""), "wait_ms": 50_000})
		if version == versions[0] && !strings.Contains(v.Text, "so blue") || version != versions[0] && len(v.Asks) != 1 {
			t.Errorf("%s: the cell returned %q", version, text)
		}
	}
}

// TestHTTPGate sends what must not pass.
func TestHTTPGate(t *testing.T) {
	url := serveHTTP(t, openHost(t))
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for _, tt := range []struct {
		what, method, body string
		header             []string
		status             int
	}{
		{"no token", "POST", list, nil, 401},
		{"a wrong token", "POST", list, []string{"Authorization", "Bearer mallory"}, 401},
		{"another host", "POST", list, []string{"Authorization", "Bearer alice", "Host", "evil.test"}, 403},
		{"another origin", "POST", list, []string{"Authorization", "Bearer alice", "Origin", "http://evil.test"}, 403},
		{"a page of another site", "POST", list, []string{"Authorization", "Bearer alice", "Sec-Fetch-Site", "cross-site"}, 403},
		{"a stream", "GET", "", []string{"Authorization", "Bearer alice", "Accept", "text/event-stream"}, 405},
		{"the end of a session", "DELETE", "", []string{"Authorization", "Bearer alice"}, 405},
		{"a parameter", "POST", list, []string{"Authorization", "Bearer alice", "?", "token=alice"}, 400},
		{"too much", "POST", strings.Repeat(" ", mcpapi.MaxBody+1), []string{"Authorization", "Bearer alice"}, 413},
		{"no JSON", "POST", "hello", []string{"Authorization", "Bearer alice"}, 400},
		{"a list", "POST", list, []string{"Authorization", "Bearer alice"}, 200},
	} {
		address := url
		r, err := http.NewRequestWithContext(t.Context(), tt.method, address, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(tt.header); i += 2 {
			switch key, value := tt.header[i], tt.header[i+1]; key {
			case "Host":
				r.Host = value
			case "?":
				r.URL.RawQuery = value
			default:
				r.Header.Set(key, value)
			}
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %d, want %d: %s", tt.what, resp.StatusCode, tt.status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestHeartbeat has a call wait and a client listen while nothing happens: both streams get
// comments, and then the answer.
func TestHeartbeat(t *testing.T) {
	url := serveHTTP(t, openHost(t))
	c := dial(t, url, "alice", "2026-07-28", nil)
	run, _ := c.call("run_command", args{"command": "read x; echo $x", "tty": true, "wait_ms": 0})
	id := string(run.Run)
	var last io.Reader
	for _, r := range []struct{ method, params string }{
		{"subscriptions/listen", `"notifications":{"resourceSubscriptions":["spool://runs/` + id + `/output"]}`},
		{"tools/call", `"name":"read_run","arguments":{"run":"` + id + `","until":"end","wait_ms":50000}`},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		body := `{"jsonrpc":"2.0","id":1,"method":"` + r.method + `","params":{` + r.params + `,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Authorization": "Bearer alice", "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
			"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": r.method, "Mcp-Name": "read_run"} {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		comments, events := 0, 0
		for lines := bufio.NewScanner(resp.Body); comments < 3 && lines.Scan(); {
			switch {
			case lines.Text() == ":":
				comments++
			case strings.HasPrefix(lines.Text(), "data:"):
				events++
			}
		}
		if comments < 3 || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %d comments, %d events", r.method, resp.Status, comments, events)
		}
		last = resp.Body
	}
	c.call("send_input", args{"run": id, "text": "bye\n"})
	if rest, err := io.ReadAll(last); err != nil || !strings.Contains(string(rest), `"why":"end"`) {
		t.Errorf("the call answers %q, %v", rest, err)
	}
}
