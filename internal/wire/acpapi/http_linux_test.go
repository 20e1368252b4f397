package acpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/acpapi"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// serveHTTP serves the actor at /acp, and returns the address and the server.
func serveHTTP(t *testing.T, b spool.Backend) (string, *httpapi.Server) {
	t.Helper()
	api := httpapi.New(httpapi.Options{
		Backend: b, Gate: &access.Gate{}, ACPWith: []string{"actor"},
		ACP: func(ctx context.Context, s *httpapi.Socket, _ *access.Subject, b spool.Backend, _ string) error {
			return acpapi.New(acpapi.Options{Backend: b, Version2: true, Config: agent.Config{Agent: agent.ACP, Command: []string{os.Args[0], actorRole}}}).ServeMessages(ctx, s)
		},
	})
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close(0)
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL + "/acp", api
}

// socketWriter sends each line as a message.
type socketWriter struct{ *websocket.Conn }

func (w socketWriter) Write(p []byte) (int, error) {
	return len(p), w.Conn.Write(context.Background(), websocket.MessageText, p[:len(p)-1])
}

// dialHTTP connects a client over a WebSocket. ended gets how it was closed.
func dialHTTP(t *testing.T, url string) (p *peer, conn *websocket.Conn, ended chan websocket.StatusCode) {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), url+"?agent=actor", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Header.Get("Acp-Connection-Id") == "" {
		t.Error("the connection has no name")
	}
	conn.SetReadLimit(1 << 24)
	p, ended = &peer{t: t, in: socketWriter{conn}, more: make(chan struct{})}, make(chan websocket.StatusCode, 1)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			kind, b, err := conn.Read(context.Background())
			if err != nil {
				ended <- websocket.CloseStatus(err)
				return
			}
			if kind != websocket.MessageText {
				t.Error("a message is binary")
			}
			p.take(string(b) + "\n")
		}
	})
	t.Cleanup(func() {
		_ = conn.CloseNow()
		work.Wait()
		checkSchema(t, p)
	})
	return p, conn, ended
}

// TestHTTP has clients of both versions in one session over WebSockets. One leaves in the
// middle of a turn, which goes on; the server ends, and says so.
func TestHTTP(t *testing.T) {
	url, api := serveHTTP(t, openHost(t))
	for _, bad := range []string{url, url + "?agent=nobody", url + "?agent=actor&x=1"} {
		if conn, resp, err := websocket.Dial(t.Context(), bad, nil); err == nil || resp == nil || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %v, %v, %v", bad, conn, resp, err)
		}
	}
	if resp, err := http.Get(url + "?agent=actor"); err != nil || resp.StatusCode != http.StatusUpgradeRequired {
		t.Errorf("a plain request: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	one, conn, _ := dialHTTP(t, url)
	one.call("initialize", object{"protocolVersion": 1, "clientInfo": object{"name": "peer", "version": "1"}})
	session := one.open()
	one.send("session/prompt", params(session, "ask me")) // nobody waits for the answer
	one.asked("session/request_permission", 0)
	if err := conn.Write(t.Context(), websocket.MessageBinary, []byte("passed over")); err != nil {
		t.Error(err)
	}
	_ = conn.CloseNow()
	two, _, ended := dialHTTP(t, url)
	two.call("initialize", object{"protocolVersion": 2, "info": object{"name": "peer", "version": "1"}, "capabilities": object{}})
	two.call("session/resume", object{"sessionId": session, "cwd": "/", "replayFrom": object{"type": "start"}})
	two.reply(two.asked("session/request_permission", 0), object{"outcome": object{"outcome": "selected", "optionId": "yes"}})
	two.await("end of the turn", func(m *message) bool { return strings.Contains(m.raw, `"stopReason":"end_turn"`) })
	two.turn2(session, "and now", nil)
	api.Close(0)
	if code := <-ended; code != websocket.StatusGoingAway {
		t.Errorf("the connection was closed with %d", code)
	}
}

// panicking is a backend that panics when it starts a run.
type panicking struct{ spool.Backend }

func (panicking) Start(context.Context, spool.Spec) (spool.Info, error) { panic("armed") }

// TestHTTPOfABackendThatPanics checks that the connection ends of a client whose request
// panics, and that the program goes on.
func TestHTTPOfABackendThatPanics(t *testing.T) {
	url, _ := serveHTTP(t, panicking{openHost(t)})
	for range 2 {
		p, _, ended := dialHTTP(t, url)
		p.call("initialize", object{"protocolVersion": 1, "clientInfo": object{"name": "peer", "version": "1"}})
		p.send("session/new", object{"cwd": t.TempDir(), "mcpServers": []any{}})
		<-ended
	}
}
