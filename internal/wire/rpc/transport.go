package rpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Transport carries whole messages. One goroutine at a time calls Read; any
// number may call Write.
type Transport interface {
	// Read returns the next message, which the caller owns, and whether it
	// is binary.
	Read(ctx context.Context) (b []byte, binary bool, err error)
	// Write sends the parts as one message.
	Write(ctx context.Context, binary bool, parts ...[]byte) error
	// Ping returns once the peer has answered.
	Ping(ctx context.Context) error
	// Close closes the connection at once.
	Close() error
	// String names the peer in error messages.
	String() string
}

// frameBytes is the largest WebSocket frame we send. Peers refuse frames above
// 16 MiB but accept a message of several frames.
const frameBytes = 4 << 20

// WebSocket returns a transport over an open WebSocket connection.
func WebSocket(c *websocket.Conn, name string) Transport {
	c.SetReadLimit(MaxMessage)
	return &webSocket{conn: c, name: name}
}

type webSocket struct {
	conn  *websocket.Conn
	name  string
	guess int // size of the next message, probably: that of the last one read

	mu     sync.Mutex // held while a message is written
	frames *Frames    // writes the messages; nil if conn does

	spareMu sync.Mutex
	spare   [][]byte // buffers for further messages
}

const (
	// maxSpare is the largest number of spare buffers.
	maxSpare = 16
	// minBuffer and maxGuess are about the size of the first buffer of a
	// message.
	minBuffer = 512
	maxGuess  = 1 << 20
)

func (w *webSocket) recycle(b []byte) {
	w.spareMu.Lock()
	defer w.spareMu.Unlock()
	if len(w.spare) < maxSpare {
		w.spare = append(w.spare, b[:0])
	}
}

// buffer returns an empty buffer for the next message.
func (w *webSocket) buffer() []byte {
	w.spareMu.Lock()
	defer w.spareMu.Unlock()
	if n := len(w.spare); n > 0 {
		b := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return b
	}
	return make([]byte, 0, max(minBuffer, w.guess+w.guess/8))
}

func (w *webSocket) Read(ctx context.Context) ([]byte, bool, error) {
	typ, r, err := w.conn.Reader(ctx)
	if err != nil {
		return nil, false, err
	}
	b := w.buffer()
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	w.guess = min(len(b), maxGuess)
	return b, typ == websocket.MessageBinary, nil
}

func (w *webSocket) Write(ctx context.Context, binary bool, parts ...[]byte) error {
	typ := websocket.MessageText
	if binary {
		typ = websocket.MessageBinary
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.frames != nil {
		return w.frames.message(binary, parts...)
	}
	if len(parts) == 1 && len(parts[0]) <= frameBytes {
		return w.conn.Write(ctx, typ, parts[0])
	}
	m, err := w.conn.Writer(ctx, typ)
	if err != nil {
		return err
	}
	for _, p := range parts {
		for len(p) > 0 {
			n := min(len(p), frameBytes)
			if _, err := m.Write(p[:n]); err != nil {
				return err
			}
			p = p[n:]
		}
	}
	return m.Close()
}

// tryWrite sends a text message if that is possible without waiting; see [Frames.tryMessage].
func (w *webSocket) tryWrite(b []byte, later func(func())) bool {
	if w.frames == nil || !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	return w.frames.tryMessage(b, later)
}

// writePayload sends a binary message: head and a payload.
func (w *webSocket) writePayload(ctx context.Context, head []byte, p Payload) error {
	if w.frames != nil {
		if !w.mu.TryLock() {
			p.Pause()
			w.mu.Lock()
		}
		defer w.mu.Unlock()
		return w.frames.write(frameFinal|frameBinary, head, p)
	}
	defer p.Drop()
	b, err := p.Load()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return w.Write(ctx, true, head, b)
}

func (w *webSocket) Ping(ctx context.Context) error { return w.conn.Ping(ctx) }
func (w *webSocket) Close() error                   { return w.conn.CloseNow() }
func (w *webSocket) String() string                 { return w.name }

// Lines returns a transport with one message per line. Close closes r and w if
// they are an [io.Closer].
func Lines(r io.Reader, w io.Writer, name string) Transport {
	return &lines{r: bufio.NewReaderSize(r, 64<<10), w: w, closers: []any{r, w}, name: name}
}

type lines struct {
	r       *bufio.Reader
	closers []any
	name    string

	mu sync.Mutex
	w  io.Writer
}

var (
	errLineTooLong = fmt.Errorf("line exceeds %d bytes", MaxMessage)
	errTooLong     = fmt.Errorf("message exceeds %d bytes", MaxMessage)
)

func (l *lines) Read(context.Context) ([]byte, bool, error) {
	for {
		var line []byte
		for {
			part, err := l.r.ReadSlice('\n')
			line = append(line, part...)
			if len(line) > MaxMessage+len("\r\n") {
				return nil, false, errLineTooLong
			}
			if err == nil || errors.Is(err, io.EOF) && len(line) > 0 {
				break
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				return nil, false, err
			}
		}
		for len(line) > 0 && (line[len(line)-1] == '\n' || line[len(line)-1] == '\r') {
			line = line[:len(line)-1]
		}
		if len(line) > MaxMessage {
			return nil, false, errLineTooLong
		}
		if len(line) > 0 {
			return line, false, nil
		}
	}
}

func (l *lines) Write(_ context.Context, binary bool, parts ...[]byte) error {
	if binary {
		return errors.New("binary messages need a WebSocket")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range append(parts, []byte("\n")) {
		if _, err := l.w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func (l *lines) Ping(context.Context) error { return nil }

func (l *lines) Close() error {
	var first error
	for _, c := range l.closers {
		if c, ok := c.(io.Closer); ok {
			if err := c.Close(); err != nil && first == nil {
				first = err
			}
		}
	}
	return first
}

func (l *lines) String() string { return l.name }

// PingWithin pings the peer and waits for its answer for at most a time. A caller does
// that at intervals, so that proxies do not drop an idle connection. A missing answer is
// not an error: the peer may be busy reading a large message. A ping that cannot be sent
// is an error: it reveals a lost connection even if no goroutine reads from it.
func PingWithin(ctx context.Context, t Transport, wait time.Duration) error {
	pingCtx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err := t.Ping(pingCtx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		return nil
	}
	return err
}
