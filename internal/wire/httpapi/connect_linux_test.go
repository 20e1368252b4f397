package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// dialRPC serves a backend and returns a client of /v1/rpc.
func dialRPC(t *testing.T, o httpapi.Options, c client.Options) *client.Client {
	t.Helper()
	rpc := execserver.New(execserver.Options{Backend: o.Backend, Keep: true, RunsOnly: true})
	o.RPC = rpc
	s := httptest.NewUnstartedServer(nil)
	api := httpapi.New(o)
	s.Config.Handler = api
	s.Start()
	t.Cleanup(func() {
		api.Close(0)
		rpc.Close()
		s.CloseClientConnections()
		s.Close()
	})
	dialled, err := client.Dial(t.Context(), s.URL, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dialled.Close(); err != nil {
			t.Error(err)
		}
	})
	return dialled
}

// TestRPCBackend has the client of /v1/rpc pass the suite of backends.
func TestRPCBackend(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) spool.Backend {
		return dialRPC(t, httpapi.Options{Backend: openHost(t)}, client.Options{})
	})
}

// TestRPCScopes checks that each method needs the scope that its route has.
func TestRPCScopes(t *testing.T) {
	o := httpapi.Options{Backend: openHost(t)}
	token := makeTokens(t, "token bob runs:read", &o)
	c := dialRPC(t, o, client.Options{Token: token("$bob")})
	if _, err := c.Start(t.Context(), spool.Spec{Argv: []string{"/bin/true"}, Cwd: "/"}); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("a start without the scope: %v", err)
	}
	for _, err := range c.List(t.Context(), spool.Filter{}) {
		t.Error(err)
	}
	mine, err := o.Backend.Start(t.Context(), spool.Spec{Argv: []string{"/bin/cat"}, Cwd: "/", Stdin: true, Labels: map[string]string{access.LabelSubject: "bob"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stat(t.Context(), mine.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Send(t.Context(), mine.ID, spool.Input{Kind: spool.InputEOF}); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("input without the scope: %v", err)
	}
	if err := c.Control(t.Context(), mine.ID, spool.Control{Op: spool.ControlKill}); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("a kill without the scope: %v", err)
	}
}

// TestRPCRefuses checks what the address refuses: requests without a token, those
// that are no WebSocket, and methods of the codex dialect.
func TestRPCRefuses(t *testing.T) {
	o := httpapi.Options{Backend: openHost(t)}
	secret := makeTokens(t, "token bob admin", &o)("$bob")
	rpc := execserver.New(execserver.Options{Backend: o.Backend, Keep: true, RunsOnly: true})
	defer rpc.Close()
	o.RPC = rpc
	b := serve(t, o)
	if resp := b.get(t, "/v1/rpc"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", resp.Status)
	}
	b.token = secret
	if resp := b.get(t, "/v1/rpc"); resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Upgrade") != "websocket" {
		t.Errorf("without an upgrade: %s %v", resp.Status, resp.Header)
	}
	if _, err := client.Dial(t.Context(), b.url, client.Options{Token: "wrong", Reconnect: -1}); err == nil || !strings.Contains(err.Error(), "no valid token") {
		t.Errorf("with a wrong token: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(b.url, "http")+"/v1/rpc", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	for _, method := range []string{"initialize", "process/start", "fs/readFile", "http/request", "environment/info"} {
		if err := ws.Write(ctx, websocket.MessageText, []byte(`{"id":1,"method":"`+method+`","params":{}}`)); err != nil {
			t.Fatal(err)
		}
		if _, answer, err := ws.Read(ctx); err != nil || !strings.Contains(string(answer), "-32601") {
			t.Errorf("%s: %s, %v", method, answer, err)
		}
	}
}
