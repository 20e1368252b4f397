package execserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/spool-run/spool/internal/wire/execserver"
)

// bothServers runs a test against our server and against the reference.
func bothServers(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("ours", func(t *testing.T) {
		url, _ := newServer(t, execserver.Options{})
		test(t, url)
	})
	if !testing.Short() {
		t.Run("reference", func(t *testing.T) { test(t, referenceURL(t)) })
	}
}

func TestHTTPEndpoints(t *testing.T) {
	upgrade := http.Header{
		"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	tests := []struct {
		method, path string
		header       http.Header
		status       int
		body         string // where clients depend on it
	}{
		{"GET", "/", nil, 400, "Connection header did not include 'upgrade'"},
		{"GET", "/", upgrade, 101, ""},
		{"POST", "/", nil, 405, ""},
		{"GET", "/readyz", nil, 200, ""},
		{"GET", "/other", nil, 404, ""},
		{"GET", "/other", upgrade, 404, ""},
		{"POST", "/readyz", nil, 405, ""},
		{"GET", "/", http.Header{"Origin": {"http://example.com"}}, 403, ""},
		{"GET", "/readyz", http.Header{"Origin": {"null"}}, 403, ""},
		{"GET", "/readyz", http.Header{"Origin": {""}}, 403, ""},
	}
	bothServers(t, func(t *testing.T, url string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		for _, tt := range tests {
			req, err := http.NewRequestWithContext(t.Context(), tt.method, strings.Replace(url, "ws://", "http://", 1)+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.header != nil {
				req.Header = tt.header.Clone()
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status {
				t.Errorf("%s %s with %v: status %d, want %d", tt.method, tt.path, tt.header, resp.StatusCode, tt.status)
			}
			if resp.StatusCode != http.StatusSwitchingProtocols {
				body, err := io.ReadAll(resp.Body)
				if got := strings.TrimSuffix(string(body), "\n"); err != nil || tt.body != "" && got != tt.body {
					t.Errorf("%s %s: %q, %v", tt.method, tt.path, body, err)
				}
			} else if resp.Header.Get("Sec-WebSocket-Extensions") != "" || resp.Header.Get("Sec-WebSocket-Protocol") != "" {
				t.Errorf("negotiated %v", resp.Header)
			}
			resp.Body.Close()
		}
	})
}

// TestMessageLimits sends messages at a limit and just above it.
func TestMessageLimits(t *testing.T) {
	t.Parallel()
	nested := func(depth int) string {
		// The message and its params are two levels.
		return `{"id":1,"method":"x","params":[` + strings.Repeat("[", depth-2) + strings.Repeat("]", depth-2) + "]}"
	}
	values := func(n int) string {
		// The message, its id, its method and its params are four values.
		return `{"id":1,"method":"x","params":[0` + strings.Repeat(",0", n-5) + "]}"
	}
	padded := func(n int) string {
		return `{"id":1,"method":"x","params":"` + strings.Repeat("x", n) + `"}`
	}
	tests := []struct {
		name, message string
		code          int
	}{
		{"depth 127", nested(127), -32601},
		{"depth 128", nested(128), -32600},
		{"depth 100000", nested(100_000), -32600},
		{"262144 values", values(262_144), -32601},
		{"262145 values", values(262_145), -32600},
		{"15.9 MiB", padded(159 << 20 / 10), -32601},
	}
	bothServers(t, func(t *testing.T, url string) {
		p := dialPeer(t, url)
		for _, tt := range tests {
			p.send(t, websocket.MessageText, []byte(tt.message))
			r := p.response(t)
			if r.Error == nil || r.Error.Code != tt.code {
				t.Errorf("%s: %.200v, want %d", tt.name, r.Error, tt.code)
			}
			if tt.code == -32600 && r.ID != -1 {
				t.Errorf("%s: answered to %d", tt.name, r.ID)
			}
		}
		p.send(t, websocket.MessageText, []byte(`{"id":1,"method":"initialize","params":{"clientName":"x"}}`))
		if r := p.response(t); r.Error != nil {
			t.Error(r.Error)
		}
	})
}

// TestOversizedMessageEndsTheConnection exceeds the limit of 64 MiB per
// message.
func TestOversizedMessageEndsTheConnection(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p := dialPeer(t, url)
	w, err := p.conn.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	block := []byte(strings.Repeat(" ", 1<<20))
	for range 65 {
		if _, err = w.Write(block); err != nil {
			break
		}
	}
	p.ended(t)
	// The server is alive.
	q, _ := session(t, url)
	q.mustCall(t, "environment/status", nil, nil)
}

// TestFragmentedMessage sends one request in many frames.
func TestFragmentedMessage(t *testing.T) {
	bothServers(t, func(t *testing.T, url string) {
		p := dialPeer(t, url)
		w, err := p.conn.Writer(context.Background(), websocket.MessageText)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range `{"id":1,"method":"x"}` {
			if _, err := fmt.Fprintf(w, "%c", c); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if r := p.response(t); r.Error == nil || r.Error.Code != -32601 {
			t.Errorf("%+v", r)
		}
	})
}
