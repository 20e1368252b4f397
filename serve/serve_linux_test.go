package serve_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/serve"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// whoIs trusts a header, as no program should.
func whoIs(r *http.Request) (serve.Subject, error) {
	switch who := r.Header.Get("Who"); who {
	case "":
		return serve.Subject{}, errors.New("nobody")
	case "owner":
		return serve.Subject{}, nil
	case "reader":
		return serve.Subject{Name: who, Scopes: []string{"runs:read"}}, nil
	case "mistake":
		return serve.Subject{Name: who, Scopes: []string{"runs:reed"}}, nil
	default:
		return serve.Subject{Name: who}, nil
	}
}

func TestServe(t *testing.T) {
	backend, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}()
	h, err := serve.New(backend, serve.Options{Authenticate: whoIs})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	defer h.Close(0)
	for _, tt := range []struct {
		who, method, path, body string
		status                  int
		has                     string
	}{
		{"", "GET", "/v1/runs", "", 401, "unauthenticated"},
		{"", "GET", "/healthz", "", 200, "ok"},
		{"alice", "POST", "/v1/runs?wait_ms=50000", `{"id":"one","argv":["/bin/echo","hi"]}`, 201, `"closed"`},
		{"alice", "GET", "/v1/runs/one/output", "", 200, "hi"},
		{"bob", "GET", "/v1/runs/one", "", 404, "not_found"},
		{"owner", "GET", "/v1/runs/one", "", 200, `"one"`},
		{"reader", "POST", "/v1/runs", `{"argv":["/bin/echo","hi"]}`, 403, `"scope":"runs:start"`},
		{"alice", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 200, `"run_command"`},
		{"", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 401, "unauthenticated"},
		{"mistake", "GET", "/v1/runs", "", 500, "internal"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Who", tt.who)
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || !strings.Contains(string(body), tt.has) {
			t.Errorf("%s %s of %q: %d %s, %v", tt.method, tt.path, tt.who, resp.StatusCode, body, err)
		}
		if resp.StatusCode >= 400 && !json.Valid(body) {
			t.Errorf("the problem %q is not JSON", body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestServeNeedsAuthentication(t *testing.T) {
	if _, err := serve.New(nil, serve.Options{}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("without authentication: %v", err)
	}
	if _, err := serve.New(nil, serve.Options{Authenticate: whoIs, Origins: []string{"*"}}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("with every origin: %v", err)
	}
}
