// Package rpc is the one JSON-RPC core of Spool: requests both ways over
// WebSocket messages or lines, bounded decoding, and lanes that keep what must
// stay in order in order and nothing else waiting.
//
// The dialect is that of the codex exec-server: no "jsonrpc" member is sent,
// and one that is received is ignored.
package rpc

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"

	fastjson "github.com/segmentio/encoding/json"
)

// ErrConnClosed is what calls return when the connection ended before the
// answer came.
var ErrConnClosed = errors.New("connection closed")

// Handler receives what the peer sends, on the goroutine that reads: it must
// hand on anything that could wait, or have [Conn.Relieve] called if it does.
type Handler interface {
	// Request must see to it that the request is answered once.
	Request(r *Request)
	// Notification ends the connection by returning an error.
	Notification(method string, params json.RawMessage) error
	// Malformed decides what to do about a message that is not JSON-RPC;
	// an error ends the connection.
	Malformed(err error) error
}

// BinaryHandler is a Handler that also takes binary messages. Without it they
// are read as text.
type BinaryHandler interface {
	Binary(b []byte) error
}

// Conn is one connection to a peer.
type Conn struct {
	t Transport

	mu     sync.Mutex
	calls  map[int64]chan<- Message // nil once the connection ended
	nextID int64
	err    error

	turn    atomic.Uint64 // of those who read one after the other
	next    func(turn uint64)
	readers sync.WaitGroup
	ended   chan error // has room for one: why the connection ended

	done chan struct{}
}

// NewConn returns a connection. It does nothing before [Conn.Serve].
func NewConn(t Transport) *Conn {
	return &Conn{t: t, calls: make(map[int64]chan<- Message), ended: make(chan error, 1), done: make(chan struct{})}
}

// Serve reads messages until the connection ends, and returns why.
func (c *Conn) Serve(ctx context.Context, h Handler) error {
	c.next = func(turn uint64) {
		if err := c.read(ctx, h, turn); !errors.Is(err, errRelieved) {
			select {
			case c.ended <- err:
			default: // it ended before
			}
		}
	}
	c.next(0)
	err := <-c.ended
	c.mu.Lock()
	c.calls, c.err = nil, err
	c.mu.Unlock()
	close(c.done)
	_ = c.t.Close() // it is broken or unwanted by now
	c.readers.Wait()
	return err
}

// errRelieved is what ends somebody's reading when another goes on with it.
var errRelieved = errors.New("another goroutine reads")

// Relieve has another goroutine read what comes next. It is called while a
// [Handler] has a message, by somebody who finds that this takes long.
func (c *Conn) Relieve() {
	turn := c.turn.Add(1)
	c.readers.Go(func() { c.next(turn) })
}

// More reports whether a further message was received, in part at least, when
// a [Handler] has one.
func (c *Conn) More() bool {
	t, ok := c.t.(interface{ more() bool })
	return ok && t.more()
}

func (c *Conn) read(ctx context.Context, h Handler, turn uint64) error {
	bh, _ := h.(BinaryHandler)
	for c.turn.Load() == turn {
		b, binary, err := c.t.Read(ctx)
		if err != nil {
			return err
		}
		if binary && bh != nil {
			if err := bh.Binary(b); err != nil {
				return err
			}
			continue
		}
		m, err := Parse(b)
		switch {
		case err != nil:
			err = h.Malformed(fmt.Errorf("failed to parse websocket JSON-RPC message from %s: %w", c.t, err))
		case m.Result != nil || m.Error != nil:
			err = c.settle(m)
		case m.ID == nil:
			err = h.Notification(m.Method, m.Params)
		default:
			h.Request(&Request{Method: m.Method, Params: m.Params, conn: c, id: m.ID})
		}
		if err != nil {
			return err
		}
	}
	return errRelieved
}

// Recycle gives back a binary message for which nobody has any use, so that
// its memory takes another. A connection that carries much need not leave it
// to the collector.
func (c *Conn) Recycle(b []byte) {
	if t, ok := c.t.(interface{ recycle([]byte) }); ok {
		t.recycle(b)
	}
}

// settle hands a response to the call that waits for it.
func (c *Conn) settle(m Message) error {
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err != nil {
		return fmt.Errorf("answer to a request that was never sent: id %.64s", m.ID)
	}
	return c.deliver(id, m)
}

// deliver hands the answer to a request to whoever waits for it.
func (c *Conn) deliver(id int64, m Message) error {
	c.mu.Lock()
	answer, ok := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("answer to a request that was never sent: id %d", id)
	}
	answer <- m // has room for one, and gets one
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err says why the connection ended.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close drops the connection; Serve returns soon after.
func (c *Conn) Close() error { return c.t.Close() }

// Ping returns once the peer answered a ping.
func (c *Conn) Ping(ctx context.Context) error { return c.t.Ping(ctx) }

// Call sends a request and decodes its result. The peer's error is an
// [*Error]; a lost connection is [ErrConnClosed].
func (c *Conn) Call(ctx context.Context, method string, params, result any) error {
	p, err := encode(params)
	if err != nil {
		return fmt.Errorf("encode %s: %w", method, err)
	}
	id, answer, err := c.begin()
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
	_ = c.Send(false, b) // whose failure ends the connection
	m, err := c.await(ctx, answer)
	if err != nil || result == nil {
		return err
	}
	if err := fastjson.Unmarshal(m.Result, result); err != nil {
		return fmt.Errorf("decode result of %s: %w", method, err)
	}
	return nil
}

// CallBinary is Call for a request that has a form of its own, as has its
// result. The peer has it as a binary message, which [BinaryRequest] takes
// apart, and answers with [Request.ReplyBinary]; that answer is for
// [Conn.SettleBinary].
func (c *Conn) CallBinary(ctx context.Context, params []byte) ([]byte, error) {
	id, answer, err := c.begin()
	if err != nil {
		return nil, err
	}
	_ = c.Send(true, binary.AppendUvarint(nil, uint64(id)), params)
	m, err := c.await(ctx, answer)
	return m.binary, err
}

// SettleBinary hands a binary answer to the call that waits for it.
func (c *Conn) SettleBinary(b []byte) error {
	id, n := binary.Uvarint(b)
	if n <= 0 {
		return errors.New("binary answer without an id")
	}
	return c.deliver(int64(id), Message{binary: b[n:]})
}

// BinaryRequest returns the request of a [Conn.CallBinary] that came over c.
func BinaryRequest(c *Conn, method string, message []byte) (*Request, error) {
	id, n := binary.Uvarint(message)
	if n <= 0 || id > math.MaxInt64 {
		return nil, errors.New("binary request without an id")
	}
	return &Request{Method: method, Params: message[n:], conn: c, id: strconv.AppendUint(nil, id, 10)}, nil
}

// begin makes room for the answer to a request.
func (c *Conn) begin() (id int64, answer chan Message, err error) {
	answer = make(chan Message, 1)
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return 0, nil, c.closedError()
	}
	defer c.mu.Unlock()
	c.nextID++
	c.calls[c.nextID] = answer
	return c.nextID, answer, nil
}

// await waits for the answer. The peer's error is one here.
func (c *Conn) await(ctx context.Context, answer chan Message) (Message, error) {
	select {
	case m := <-answer:
		if m.Error != nil {
			return m, m.Error
		}
		return m, nil
	case <-c.done:
		return Message{}, c.closedError()
	case <-ctx.Done():
		// The slot stays until the answer comes: an answer to a
		// request we forgot would look like a protocol error.
		return Message{}, context.Cause(ctx)
	}
}

func (c *Conn) closedError() error {
	if err := c.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrConnClosed, err)
	}
	return ErrConnClosed
}

// encode is for what goes into a message: encoded already, able to do it
// itself, or anything.
func encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case json.RawMessage:
		return v, nil
	case interface{ AppendJSON([]byte) []byte }:
		return v.AppendJSON(nil), nil
	}
	return json.Marshal(v)
}

// Notify sends a notification.
func (c *Conn) Notify(method string, params any) error {
	p, err := encode(params)
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

// Send sends one message that is encoded already. It waits until the
// transport took it, so a peer that does not read holds up its sender and
// nobody else. A failed write ends the connection.
func (c *Conn) Send(binary bool, parts ...[]byte) error {
	err := c.t.Write(context.Background(), binary, parts...)
	if err != nil {
		_ = c.t.Close()
	}
	return err
}

// TrySend is Send for somebody who must not wait. It reports whether the
// message was sent.
func (c *Conn) TrySend(binary bool, b []byte) bool {
	t, ok := c.t.(interface{ tryWrite(bool, []byte) bool })
	return ok && t.tryWrite(binary, b)
}

// Request is a request from the peer.
type Request struct {
	Method string
	Params json.RawMessage

	conn *Conn
	id   json.RawMessage
}

// Size is what the request holds in memory until it is answered.
func (r *Request) Size() int { return len(r.Params) }

// ReplyBinary answers a request that came as a binary message in the same way.
// The kind comes before the answer, for a peer that is sent other things too.
func (r *Request) ReplyBinary(kind byte, result []byte) {
	id, err := strconv.ParseUint(string(r.id), 10, 64)
	if err != nil { // it is not one of those
		r.Reply(nil, errors.New("the request was not binary"))
		return
	}
	_ = r.conn.Send(true, binary.AppendUvarint([]byte{kind}, id), result) // a lost connection has no reader
}

// Reply answers the request, with err if it is not nil. An error that is not
// an [*Error] becomes CodeInternal with its text, and so does a result that no
// peer would accept.
func (r *Request) Reply(result any, err error) {
	b := make([]byte, 0, 256)
	var body []byte
	if err == nil {
		body, err = encode(result)
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
		if err != nil { // only Data could fail, and ours is always valid
			body = []byte(`{"code":-32603,"message":"internal error"}`)
		}
		b = append(b, `{"error":`...)
		b = append(b, body...)
		b = append(b, `,"id":`...)
		b = append(b, r.id...)
		b = append(b, '}')
		_ = r.conn.Send(false, b) // a lost connection has no reader
		return
	}
	b = append(b, `{"id":`...)
	b = append(b, r.id...)
	b = append(b, `,"result":`...)
	if len(body) < 64<<10 {
		b = append(b, body...)
		b = append(b, '}')
		_ = r.conn.Send(false, b)
		return
	}
	_ = r.conn.Send(false, b, body, []byte("}"))
}
