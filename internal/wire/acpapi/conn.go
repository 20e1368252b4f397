package acpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// The codes of errors beside those of JSON-RPC.
const (
	codeParse    = -32700
	codeNotFound = -32002
)

// request is a request of the client.
type request struct {
	id     json.RawMessage
	method string
	params json.RawMessage
	conn   *conn
}

// handler handles what a client sends. Its methods run on the goroutine that reads and
// must not block.
type handler interface {
	request(r *request)
	notification(method string, params json.RawMessage)
}

// conn speaks JSON-RPC with a client. Unlike [rpc.Conn] it names the version in every
// message, tells the client about calls it gave up, and passes over answers to nothing:
// an editor that sends one must not lose its agent.
type conn struct {
	t   Messages
	log *slog.Logger

	mu    sync.Mutex
	calls map[string]chan rpc.Message // nil once the connection has ended
	last  int64
}

func newConn(t Messages, log *slog.Logger) *conn {
	return &conn{t: t, log: log, calls: make(map[string]chan rpc.Message)}
}

// serve reads messages until the connection ends.
func (c *conn) serve(ctx context.Context, h handler) error {
	for {
		b, _, err := c.t.Read(ctx)
		if err != nil {
			c.end()
			return err
		}
		m, err := rpc.Parse(b)
		switch {
		case err != nil:
			c.log.Warn("a message is not understood", "error", err)
			c.send(map[string]any{"id": nil, "error": rpc.Errorf(codeParse, "parse message: %v", err)})
		case m.Method == "":
			c.settle(m)
		case m.ID == nil:
			h.notification(m.Method, m.Params)
		default:
			h.request(&request{id: m.ID, method: m.Method, params: m.Params, conn: c})
		}
	}
}

// end makes the calls that wait return.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, answer := range c.calls {
		close(answer)
	}
	c.calls = nil
}

// close ends the connection, if that can be done from here.
func (c *conn) close() {
	if t, ok := c.t.(io.Closer); ok {
		_ = t.Close() // who reads notices it
	}
}

// settle passes an answer to the call that waits for it.
func (c *conn) settle(m rpc.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, ok := c.calls[string(m.ID)]
	if !ok {
		c.log.Debug("an answer to nothing", "id", string(m.ID))
		return
	}
	delete(c.calls, string(m.ID))
	answer <- m // has room for one, and gets one
}

// send sends a message. A client that is gone is noticed by who reads from it.
func (c *conn) send(m map[string]any) {
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err == nil {
		err = c.t.Write(context.Background(), false, b)
	}
	if err != nil {
		c.log.Warn("a message was not sent", "error", err)
	}
}

func (c *conn) notify(method string, params any) {
	c.send(map[string]any{"method": method, "params": params})
}

// call sends a request and decodes its result. If ctx ends first, it tells the client
// that nobody waits any more.
func (c *conn) call(ctx context.Context, method string, params, result any) error {
	answer := make(chan rpc.Message, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return rpc.ErrConnClosed
	}
	c.last++
	id := strconv.FormatInt(c.last, 10)
	c.calls[id] = answer
	c.mu.Unlock()
	c.send(map[string]any{"id": json.RawMessage(id), "method": method, "params": params})
	select {
	case m, ok := <-answer:
		switch {
		case !ok:
			return rpc.ErrConnClosed
		case m.Error != nil:
			return fmt.Errorf("%s: %w", method, m.Error)
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			return fmt.Errorf("decode result of %s: %w", method, err)
		}
		return nil
	case <-ctx.Done():
		c.mu.Lock()
		_, waits := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		if waits {
			c.notify("$/cancel_request", map[string]any{"requestId": json.RawMessage(id)})
		}
		return context.Cause(ctx)
	}
}

// reply answers the request.
func (r *request) reply(result any, err error) {
	if err == nil {
		r.conn.send(map[string]any{"id": r.id, "result": result})
		return
	}
	var e *rpc.Error
	if !errors.As(err, &e) {
		e = errorOf(err)
	}
	r.conn.send(map[string]any{"id": r.id, "error": e})
}

// decode decodes the parameters.
func (r *request) decode(v any) error {
	if err := json.Unmarshal(r.params, v); err != nil {
		return rpc.Errorf(rpc.CodeInvalidParams, "%s: %v", r.method, err)
	}
	return nil
}
