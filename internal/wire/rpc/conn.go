// Package rpc is Spool's JSON-RPC core: requests in both directions over
// WebSocket messages or lines, bounded parsing, and lanes, which keep requests
// of one key in order and let all others run concurrently.
//
// It speaks the dialect of the codex exec-server: it sends no "jsonrpc" member
// and ignores one that it receives.
package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	fastjson "github.com/segmentio/encoding/json"
)

// ErrConnClosed is the error of a call whose connection ended before the
// answer arrived.
var ErrConnClosed = errors.New("connection closed")

// Handler handles the messages of the peer. Its methods run on the goroutine
// that reads, so they must not block: a slow request belongs on a goroutine of
// its own, for example in [Lanes].
type Handler interface {
	// Request must make sure that the request is answered exactly once.
	Request(r *Request)
	// Notification ends the connection by returning an error.
	Notification(method string, params json.RawMessage) error
	// Malformed is called with the parse error of a message that is not
	// JSON-RPC. It ends the connection by returning an error.
	Malformed(err error) error
}

// BinaryHandler is a Handler that also handles binary messages. For other
// handlers, Conn parses a binary message as text.
type BinaryHandler interface {
	Binary(b []byte) error
}

// Conn is one connection to a peer.
type Conn struct {
	t        Transport
	received *Received // t, if its messages count against an intake

	mu     sync.Mutex
	calls  map[int64]answered // nil once the connection has ended
	nextID int64
	err    error

	done chan struct{}
}

// answered gets the answer to a call, or why there will be none. It is called once, and
// must not block.
type answered func(result json.RawMessage, err error)

// NewConn returns a connection. It reads nothing before [Conn.Serve].
func NewConn(t Transport) *Conn {
	received, _ := t.(*Received)
	return &Conn{t: t, received: received, calls: make(map[int64]answered), done: make(chan struct{})}
}

// Serve reads and handles messages until the connection ends, and returns the
// reason.
func (c *Conn) Serve(ctx context.Context, h Handler) error {
	for {
		b, binary, err := c.t.Read(ctx)
		if err == nil {
			err = c.Receive(h, b, binary)
		}
		if err != nil {
			c.End(err)
			return err
		}
	}
}

// Receive handles one message of the peer. An error means that the connection
// must end. A program that reads the transport itself, instead of calling
// [Conn.Serve], calls Receive for each message and [Conn.End] once.
func (c *Conn) Receive(h Handler, b []byte, binary bool) error {
	var room *held
	if c.received != nil {
		room = c.received.handOver()
	}
	defer func() { room.release() }()
	if binary {
		if bh, ok := h.(BinaryHandler); ok {
			return bh.Binary(b)
		}
	}
	m, err := Parse(b)
	switch {
	case err != nil:
		return h.Malformed(fmt.Errorf("failed to parse websocket JSON-RPC message from %s: %w", c.t, err))
	case m.Result != nil || m.Error != nil:
		return c.settle(m)
	case m.ID == nil:
		return h.Notification(m.Method, m.Params)
	}
	r := &Request{Method: m.Method, Params: m.Params, conn: c, id: m.ID, room: room}
	room = nil // the handler releases it
	h.Request(r)
	return nil
}

// End ends the connection: it closes the transport, and every call that waits
// returns [ErrConnClosed] with err. Only the first End has an effect.
func (c *Conn) End(err error) {
	c.mu.Lock()
	calls := c.calls
	if calls != nil {
		c.calls, c.err = nil, err
		close(c.done)
	}
	c.mu.Unlock()
	if calls == nil {
		return
	}
	_ = c.t.Close() // the connection is broken or no longer needed
	for _, done := range calls {
		done(nil, c.closedError())
	}
}

// Recycle gives back the memory of a binary message that is no longer needed,
// so that the transport can read another message into it.
func (c *Conn) Recycle(b []byte) {
	if t, ok := c.t.(interface{ recycle([]byte) }); ok {
		t.recycle(b)
	}
}

// settle passes a response to the call that waits for it.
func (c *Conn) settle(m Message) error {
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		return fmt.Errorf("answer to a request that was never sent: id %.64s", m.ID)
	}
	c.mu.Lock()
	done, ok := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	switch {
	case !ok:
		return fmt.Errorf("answer to a request that was never sent: id %d", id)
	case m.Error != nil:
		done(nil, m.Error)
	default:
		done(m.Result, nil)
	}
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns the reason why the connection ended.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the transport; Serve returns soon after.
func (c *Conn) Close() error { return c.t.Close() }

// Ping sends a ping and returns once the peer has answered it.
func (c *Conn) Ping(ctx context.Context) error { return c.t.Ping(ctx) }

// Call sends a request and decodes its result. An error of the peer is an
// [*Error]; a lost connection is [ErrConnClosed].
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	type answer struct {
		result json.RawMessage
		err    error
	}
	answers := make(chan answer, 1)
	if err := c.Go(method, params, func(result json.RawMessage, err error) { answers <- answer{result, err} }); err != nil {
		return err
	}
	select {
	case a := <-answers:
		if a.err != nil || result == nil {
			return a.err
		}
		return Decode(method, a.result, result)
	case <-ctx.Done():
		// The call stays registered until its answer arrives, which
		// would otherwise look like a protocol error.
		return context.Cause(ctx)
	}
}

// Go sends a request, and has done called with its result, or with the error that
// [Conn.Call] would return. It is called once, unless Go returns an error, by the
// goroutine that reads or the one that ends the connection, so it must not block. Of
// many calls that wait for long, none has a goroutine.
func (c *Conn) Go(method string, params any, done func(result json.RawMessage, err error)) error {
	p, err := Encode(params)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	id, err := c.begin(done)
	if err != nil {
		return err
	}
	b := make([]byte, 0, len(p)+len(method)+48)
	b = append(b, `{"id":`...)
	b = strconv.AppendInt(b, id, 10)
	b = append(b, `,"method":"`...)
	b = append(b, method...)
	b = append(b, `","params":`...)
	b = append(b, p...)
	b = append(b, '}')
	_ = c.Send(false, b) // a failed write ends the connection, and with it the call
	return nil
}

// begin registers a call.
func (c *Conn) begin(done answered) (id int64, err error) {
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return 0, c.closedError()
	}
	defer c.mu.Unlock()
	c.nextID++
	c.calls[c.nextID] = done
	return c.nextID, nil
}

// Decode decodes the result of a method.
func Decode(method string, raw json.RawMessage, result any) error {
	if err := fastjson.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("decode result of %s: %w", method, err)
	}
	return nil
}

func (c *Conn) closedError() error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrConnClosed, err)
	}
	return ErrConnClosed
}

// usualJSON is room for most values that have an AppendJSON method.
const usualJSON = 512

// Encode returns the JSON of a value: the value itself if it is JSON already,
// else what its AppendJSON method or encoding/json makes of it.
func Encode(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case json.RawMessage:
		return v, nil
	case interface{ AppendJSON([]byte) []byte }:
		return v.AppendJSON(make([]byte, 0, usualJSON)), nil
	}
	return json.Marshal(v)
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params any) error {
	p, err := Encode(params)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	b := make([]byte, 0, len(p)+len(method)+32)
	b = append(b, `{"method":"`...)
	b = append(b, method...)
	b = append(b, `","params":`...)
	b = append(b, p...)
	b = append(b, '}')
	return c.Send(false, b)
}

// Send sends one encoded message. It returns once the transport has taken the
// message, so a peer that does not read blocks only the senders to that peer.
// A failed write ends the connection.
func (c *Conn) Send(binary bool, parts ...[]byte) error {
	err := c.t.Write(context.Background(), binary, parts...)
	if err != nil {
		_ = c.t.Close()
	}
	return err
}

// trySend sends a text message if that is possible without waiting, and reports whether it did.
// The peer may not have room for its end: then later is to call a function on another
// goroutine.
func (c *Conn) trySend(b []byte, later func(func())) bool {
	t, ok := c.t.(interface {
		tryWrite(b []byte, later func(func())) bool
	})
	return ok && t.tryWrite(b, later)
}

// SendPayload sends a binary message, head and a payload, like [Conn.Send], and drops
// the payload. While it waits for the peer or for another message, it has paused the
// payload if the transport allows that. The error is [ErrUnsent] if the payload could
// not be loaded and the connection goes on.
func (c *Conn) SendPayload(head []byte, p Payload) error {
	t, ok := c.t.(interface {
		writePayload(ctx context.Context, head []byte, p Payload) error
	})
	if !ok {
		return errors.New("binary messages need a WebSocket")
	}
	err := t.writePayload(context.Background(), head, p)
	if err != nil && !errors.Is(err, ErrUnsent) {
		_ = c.t.Close()
	}
	return err
}

// Request is a request from the peer.
type Request struct {
	Method string
	Params json.RawMessage

	conn *Conn
	id   json.RawMessage
	room *held
}

// Release gives back the room that the request takes of an [Intake]. The handler
// calls it once the request is answered, or will not be.
func (r *Request) Release() { r.room.release() }

// Size is the number of bytes that the request holds until it is answered.
func (r *Request) Size() int { return len(r.Params) }

// TryReply answers the request with a result if that is possible without waiting for the
// peer, and reports whether it did. To write what the peer has no room for, it gives later
// a function that may wait.
func (r *Request) TryReply(result any, later func(func())) bool {
	body, err := Encode(result)
	return err == nil && r.conn.trySend(r.answer(body), later)
}

// answer returns the message that answers the request.
func (r *Request) answer(body []byte) []byte {
	b := append(make([]byte, 0, len(r.id)+32+len(body)), `{"id":`...)
	b = append(b, r.id...)
	b = append(b, `,"result":`...)
	b = append(b, body...)
	return append(b, '}')
}

// Reply answers the request, with err if it is not nil. An error that is not
// an [*Error] becomes CodeInternal with its text. So does a result that is too
// large for a peer.
func (r *Request) Reply(result any, err error) {
	var body []byte
	if err == nil {
		body, err = Encode(result)
	}
	if size := len(body) + len(r.id) + len(`{"id":,"result":}`); err == nil && size > MaxMessage {
		err = Errorf(CodeInternal, "the result of %s would be a message of %d bytes, and peers accept %d: ask for less at a time", r.Method, size, MaxMessage)
	}
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			e = &Error{Code: CodeInternal, Message: err.Error()}
		}
		body, err = json.Marshal(e)
		if err != nil { // only invalid Data can fail, and ours is valid
			body = []byte(`{"code":-32603,"message":"internal error"}`)
		}
		b := append(make([]byte, 0, len(body)+len(r.id)+32), `{"error":`...)
		b = append(b, body...)
		b = append(b, `,"id":`...)
		b = append(b, r.id...)
		b = append(b, '}')
		_ = r.conn.Send(false, b) // nothing to do if the connection is lost
		return
	}
	if len(body) < 64<<10 {
		_ = r.conn.Send(false, r.answer(body))
		return
	}
	b := append(make([]byte, 0, len(r.id)+32), `{"id":`...)
	b = append(b, r.id...)
	b = append(b, `,"result":`...)
	_ = r.conn.Send(false, b, body, []byte("}"))
}
