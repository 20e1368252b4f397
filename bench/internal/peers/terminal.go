package peers

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// Web returns the peers of the HTTP server.
func Web() []Peer { return []Peer{sandboxAgent, jupyterServer, wetty} }

// Asked is a server that answers a small GET.
type Asked interface {
	// Ask returns a GET: of the output of a command that has ended, if the server
	// keeps it, and otherwise of its status.
	Ask(ctx context.Context) (get func() error, err error)
}

// Terminals is a server of terminals.
type Terminals interface {
	// Terminal starts a shell in a terminal, and returns when the client had its
	// first byte.
	Terminal(ctx context.Context) (time.Time, error)
}

// Ask implements Asked.
func (s *sandboxAgentServer) Ask(ctx context.Context) (get func() error, err error) {
	j, err := s.Start(ctx, "echo", "hello")
	if err == nil {
		_, err = j.Reader(true).Follow(ctx, func([]byte) {})
	}
	if err != nil {
		return nil, err
	}
	path := "processes/" + j.(*sandboxAgentJob).ID + "/logs"
	return func() error { return s.Call(ctx, "GET", path, nil, nil) }, nil
}

// Ask implements Asked.
func (s *jupyterPeer) Ask(ctx context.Context) (get func() error, err error) {
	return func() error { return s.Call(ctx, "GET", "/status", nil, nil) }, nil
}

// Terminal implements Terminals.
func (s *jupyterPeer) Terminal(ctx context.Context) (first time.Time, err error) {
	var t struct{ Name string }
	if err := s.Call(ctx, "POST", "/terminals", map[string]any{}, &t); err != nil {
		return first, err
	}
	url := "ws" + strings.TrimPrefix(strings.TrimSuffix(s.Base, "/api"), "http") + "/terminals/websocket/" + t.Name + "?token=bench"
	ws, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return first, err
	}
	defer func() { _ = ws.CloseNow() }() // nothing more is read
	for first.IsZero() {
		_, b, err := ws.Read(ctx)
		if err != nil {
			return first, err
		}
		if bytes.HasPrefix(b, []byte(`["stdout"`)) {
			first = time.Now()
		}
	}
	return first, s.Call(ctx, "DELETE", "/terminals/"+t.Name, nil, nil)
}
