package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
)

// plainConn is a connection that writes payloads in one piece.
type plainConn struct{ net.Conn }

func (c plainConn) WritePayload(head []byte, p Payload) error {
	b, err := p.Load()
	if err == nil {
		_, err = c.Write(append(bytes.Clone(head), b...))
	}
	return err
}

// recorded is a connection that records what is written, each part only after
// release received.
type recorded struct {
	plainConn
	begun   chan struct{} // filled when a write begins
	release chan struct{}

	mu sync.Mutex
	b  []byte
}

func (c *recorded) Write(p []byte) (int, error) {
	c.begun <- struct{}{}
	<-c.release
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b = append(c.b, p...)
	return len(p), nil
}

func (c *recorded) WritePayload(head []byte, p Payload) error {
	b, err := p.Load()
	if err == nil {
		_, err = c.Write(append(bytes.Clone(head), b...))
	}
	return err
}

// A control frame that comes while a frame is being written follows it, and the
// websocket package does not wait.
func TestControlFrameFollowsTheFrame(t *testing.T) {
	c := &recorded{begun: make(chan struct{}, 1), release: make(chan struct{})}
	f := NewFrames(c)
	done := make(chan error)
	go func() { done <- f.message(true, []byte("data")) }()
	<-c.begun
	for range 2 {
		if n, err := f.Write([]byte("\x8a\x01p")); n != 3 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	c.release <- struct{}{}
	<-c.begun
	c.release <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got, want := string(c.b), "\x82\x04data\x8a\x01p\x8a\x01p"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	go func() { // and alone
		<-c.begun
		c.release <- struct{}{}
	}()
	if _, err := f.Write([]byte("\x89\x00")); err != nil {
		t.Fatal(err)
	}
}

// A peer that pings without reading does not fill the memory.
func TestControlFramesAreBounded(t *testing.T) {
	c := &recorded{begun: make(chan struct{}, 1), release: make(chan struct{})}
	f := NewFrames(c)
	done := make(chan error)
	go func() { done <- f.message(true, []byte("data")) }()
	<-c.begun
	held := 0
	for {
		n, err := f.Write(make([]byte, ControlBytes))
		if err != nil {
			break
		}
		if held += n; held > maxControl {
			t.Fatalf("%d bytes are held", held)
		}
	}
	close(c.release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// pausing is a payload that tells when it is paused, and may fail to load.
type pausing struct {
	Bytes
	paused chan struct{}
	err    error
}

func (p *pausing) Load() ([]byte, error) { return p.Bytes, p.err }
func (p *pausing) Pause()                { p.paused <- struct{}{} }

// A payload that waits for another message is paused meanwhile.
func TestPayloadIsPausedWhileAnotherMessageIsSent(t *testing.T) {
	c := &recorded{begun: make(chan struct{}, 1), release: make(chan struct{})}
	w := &webSocket{frames: NewFrames(c)}
	done := make(chan error, 2)
	go func() { done <- w.Write(t.Context(), true, []byte("first")) }()
	<-c.begun
	p := &pausing{Bytes: Bytes("second"), paused: make(chan struct{}, 1)}
	go func() { done <- w.writePayload(t.Context(), []byte("the "), p) }()
	<-p.paused
	close(c.release)
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	if got, want := string(c.b), "\x82\x05first\x82\x0athe second"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A payload that cannot be loaded is not begun, and the next message is sent.
func TestPayloadThatCannotBeLoaded(t *testing.T) {
	c := &recorded{begun: make(chan struct{}, 1), release: make(chan struct{})}
	close(c.release)
	w := &webSocket{frames: NewFrames(c)}
	lost := errors.New("lost")
	if err := w.writePayload(t.Context(), []byte("head"), &pausing{err: lost}); !errors.Is(err, ErrUnsent) || !errors.Is(err, lost) {
		t.Errorf("%v", err)
	}
	if err := w.Write(t.Context(), true, []byte("next")); err != nil || string(c.b) != "\x82\x04next" {
		t.Errorf("%v, %q", err, c.b)
	}
}

// The messages arrive at a client of the websocket package, with pings between
// them, and their heads are as short as possible.
func TestFramesOfMessages(t *testing.T) {
	sizes := []int{0, 1, 125, 126, 1<<16 - 1, 1 << 16, frameBytes, frameBytes + 1, 2*frameBytes + 5}
	parts := [][]byte{[]byte(`{"id":1,"result":`), bytes.Repeat([]byte("x"), 100_000), []byte("}")}
	payload := Bytes(bytes.Repeat([]byte("r"), 70_000))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &frameHijacker{ResponseWriter: w}
		c, err := websocket.Accept(h, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		in := NewIntake(0, 1<<20).WebSocket(c, h.frames, "test")
		ctx := c.CloseRead(r.Context())
		var pings sync.WaitGroup
		pings.Go(func() {
			for range 20 {
				if in.Ping(ctx) != nil {
					return
				}
			}
		})
		conn := NewConn(in)
		for _, n := range sizes {
			if err := conn.Send(n%2 == 0, bytes.Repeat([]byte("m"), n)); err != nil {
				t.Error(err)
			}
		}
		if err := conn.Send(false, parts...); err != nil {
			t.Error(err)
		}
		if err := conn.SendPayload([]byte("head"), payload); err != nil {
			t.Error(err)
		}
		pings.Wait()
		<-ctx.Done()
		_ = c.CloseNow()
	}))
	defer s.Close()
	ctx := t.Context()
	c, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(s.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.CloseNow() }()
	peer := WebSocket(c, "server")
	read := func(isBinary bool, want []byte) {
		t.Helper()
		b, got, err := peer.Read(ctx)
		if err != nil || got != isBinary || !bytes.Equal(b, want) {
			t.Fatalf("%d bytes, binary %v, want %d, %v: %v", len(b), got, len(want), isBinary, err)
		}
	}
	for _, n := range sizes {
		read(n%2 == 0, bytes.Repeat([]byte("m"), n))
	}
	read(false, bytes.Join(parts, nil))
	read(true, append([]byte("head"), payload...))
	go func() { _, _, _ = peer.Read(context.Background()) }() // answers the pings that are left
	if err := peer.Ping(ctx); err != nil {
		t.Error(err)
	}
}

func TestFrameHeads(t *testing.T) {
	for n, want := range map[int][]byte{
		0: {0x82, 0}, 125: {0x82, 125}, 126: {0x82, 126, 0, 126}, 1<<16 - 1: {0x82, 126, 0xff, 0xff},
		1 << 16: binary.BigEndian.AppendUint64([]byte{0x82, 127}, 1<<16),
	} {
		a, b := net.Pipe()
		go func() {
			if err := NewFrames(plainConn{a}).message(true, make([]byte, n)); err != nil {
				t.Error(err)
			}
			_ = a.Close()
		}()
		var got bytes.Buffer
		if _, err := got.ReadFrom(b); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Bytes(), append(want, make([]byte, n)...)) {
			t.Errorf("%d bytes: %x, want %x", n, got.Bytes()[:len(want)], want)
		}
	}
}

// roomyConn has room for some bytes.
type roomyConn struct {
	*recorded
	room   int
	during func() // called while it writes; may be nil
}

func (c *roomyConn) TryWrite(p []byte) int {
	if c.during != nil {
		c.during()
	}
	n := min(c.room, len(p))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b = append(c.b, p[:n]...)
	return n
}

// TestTryMessage checks that a message is written without waiting, or not at all, and that
// only its end is left to another goroutine.
func TestTryMessage(t *testing.T) {
	pong := "\x8a\x01p"
	for _, tt := range []struct {
		name    string
		room    int
		size    int
		busy    bool // another message is being written
		control bool // a control frame comes meanwhile
		sent    bool
		later   int // calls
	}{
		{"room", 100, 4, false, false, true, 0},
		{"room for a part", 3, 4, false, false, true, 1},
		{"no room", 0, 4, false, false, false, 0},
		{"another message", 100, 4, true, false, false, 0},
		{"a control frame", 100, 4, false, true, true, 1},
		{"a control frame, and room for a part", 3, 4, false, true, true, 1},
		{"a control frame, and no room", 0, 4, false, true, false, 1},
		{"a large message", 1 << 20, maxTry + 1, false, false, false, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := &roomyConn{recorded: &recorded{begun: make(chan struct{}, 10), release: make(chan struct{})}, room: tt.room}
			close(c.release)
			f := NewFrames(c)
			f.writing = tt.busy
			if tt.control {
				c.during = func() {
					if _, err := f.Write([]byte(pong)); err != nil {
						t.Error(err)
					}
				}
			}
			var later []func()
			body := strings.Repeat("x", tt.size)
			if sent := f.tryMessage([]byte(body), func(f func()) { later = append(later, f) }); sent != tt.sent || len(later) != tt.later {
				t.Fatalf("sent %v, and %d calls are left", sent, len(later))
			}
			for _, call := range later {
				call()
			}
			want := ""
			if tt.sent {
				want = "\x81\x04" + body
			}
			if tt.control {
				want += pong
			}
			if got := string(c.b); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if f.writing != tt.busy {
				t.Error("the next message would wait for ever")
			}
		})
	}
}
