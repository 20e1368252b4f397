package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// acpConnection is the header that names a connection of the Agent Client Protocol.
const acpConnection = "Acp-Connection-Id"

// ACP serves a client of the Agent Client Protocol: an agent of this name, for a subject
// with its part of the backend, until the client leaves.
type ACP func(ctx context.Context, s *Socket, subject *access.Subject, b spool.Backend, agent string) error

// acpOperation is the WebSocket at /acp. It is not in the table: the protocol calls this
// transport a proposal.
func acpOperation(agents []string, serve ACP) *operation {
	return &operation{method: http.MethodGet, pattern: "/acp", name: "acp", scope: access.Read,
		query: []param{{name: "agent", kind: textParam, oneOf: agents}},
		serve: func(c *call) error { return c.acp(agents, serve) }}
}

// acp turns the request into a WebSocket on which an agent answers.
func (c *call) acp(agents []string, serve ACP) error {
	if err := c.wantsWebSocket(); err != nil {
		return err
	}
	if c.text("agent") == "" {
		return problemf("invalid", "name an agent: /acp?agent=NAME with %s", strings.Join(agents, ", "))
	}
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	c.w.Header().Set(acpConnection, rand.Text())
	s := &Socket{call: c}
	if s.conn, err = c.upgrade(); err != nil {
		return nil
	}
	s.conn.SetReadLimit(c.server.limits.Body)
	ctx, cancel := context.WithCancelCause(c.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { cancel(c.keepAlive(ctx, s.conn)) })
	wg.Go(func() { // ends what is read and written
		<-ctx.Done()
		s.close(context.Cause(ctx))
	})
	cancel(serve(ctx, s, c.subject, c.backend, c.text("agent")))
	wg.Wait()
	return nil
}

// Socket carries the messages of a client, each a message of its WebSocket.
type Socket struct {
	call *call
	conn *websocket.Conn

	mu sync.Mutex // held while a message is written
}

// Read returns the next message. Those that are binary are passed over.
func (s *Socket) Read(context.Context) ([]byte, bool, error) {
	for {
		kind, b, err := s.conn.Read(context.Background()) // the end of a context would cut the connection
		if err != nil {
			return nil, false, errLeft
		}
		if kind == websocket.MessageText {
			return b, false, nil
		}
	}
}

// Close ends the connection.
func (s *Socket) Close() error { return s.conn.CloseNow() }

// Write sends the parts as one message, for which the client has its time.
func (s *Socket) Write(_ context.Context, _ bool, parts ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.call.sendSocket(s.conn, websocket.MessageText, bytes.Join(parts, nil))
}

// close ends the connection and says why.
func (s *Socket) close(cause error) {
	if errors.Is(cause, errLeft) || errors.Is(cause, context.Canceled) {
		_ = s.conn.Close(websocket.StatusNormalClosure, "") // the client may have left
		return
	}
	code, reason := s.call.closeFor(cause)
	_ = s.conn.Close(code, reason)
}
