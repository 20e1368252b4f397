package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// binaryPeer answers binary requests with what they ask, and fails those that
// ask for it.
type binaryPeer struct{ conn *Conn }

func (p *binaryPeer) Malformed(err error) error                           { return err }
func (p *binaryPeer) Notification(method string, _ json.RawMessage) error { return errors.New(method) }
func (p *binaryPeer) Request(r *Request)                                  { r.Reply(nil, errors.New("unexpected")) }

func (p *binaryPeer) Binary(b []byte) error {
	if len(b) > 0 && b[0] == 0xff {
		return p.conn.SettleBinary(b[1:])
	}
	r, err := BinaryRequest(p.conn, "echo", b)
	if err != nil {
		return err
	}
	if string(r.Params) == "fail" {
		r.Reply(nil, Errorf(CodeInvalidParams, "no"))
		return nil
	}
	r.ReplyBinary(0xff, r.Params)
	return nil
}

// unixPair returns the two ends of a connection as processes of one machine
// have it.
func unixPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("unix", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestCallBinary(t *testing.T) {
	a, b := unixPair(t)
	var ends [2]*Conn
	served := make(chan error, 2)
	for i, c := range []net.Conn{a, b} {
		conn := NewConn(Frames(c, "peer"))
		ends[i] = conn
		go func() { served <- conn.Serve(t.Context(), &binaryPeer{conn}) }()
	}
	for _, text := range []string{"", "x", "not \xff UTF-8"} {
		got, err := ends[0].CallBinary(t.Context(), []byte(text))
		if err != nil || string(got) != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	var e *Error
	if _, err := ends[0].CallBinary(t.Context(), []byte("fail")); !errors.As(err, &e) || e.Code != CodeInvalidParams {
		t.Errorf("a call that fails: %v", err)
	}
	_ = ends[1].Close()
	if _, err := ends[0].CallBinary(t.Context(), []byte("x")); !errors.Is(err, ErrConnClosed) {
		t.Errorf("a call of nobody: %v", err)
	}
	<-served
	<-served
}

// busyPeer is at its first message until it is let go, and then at none.
type busyPeer struct {
	binaryPeer
	at    chan string
	letGo chan struct{}
}

func (p *busyPeer) Binary(b []byte) error {
	p.at <- string(b)
	if string(b) == "first" {
		<-p.letGo
	}
	return nil
}

// While somebody is at a message, another goroutine can read the next.
func TestRelieve(t *testing.T) {
	a, b := unixPair(t)
	c := NewConn(Frames(b, "peer"))
	p := &busyPeer{at: make(chan string), letGo: make(chan struct{})}
	served := make(chan error, 1)
	go func() { served <- c.Serve(t.Context(), p) }()
	peer := Frames(a, "peer")
	for i, text := range []string{"first", "second", "third"} {
		if err := peer.Write(t.Context(), true, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := <-p.at; got != text {
			t.Fatalf("%q came instead of %q", got, text)
		}
		if i == 0 {
			c.Relieve()
		}
	}
	close(p.letGo)
	if err := peer.Write(t.Context(), true, []byte("fourth")); err != nil {
		t.Fatal(err)
	}
	if got := <-p.at; got != "fourth" {
		t.Errorf("%q came after the first was done", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v", err)
	}
}

// A binary answer that nobody asked for, or without an id, ends the connection.
func TestSettleBinaryRefuses(t *testing.T) {
	c := NewConn(Frames(nil, "nobody"))
	for _, b := range [][]byte{nil, {0x80}, {7}} {
		if c.SettleBinary(b) == nil {
			t.Errorf("%x was taken", b)
		}
		if _, err := BinaryRequest(c, "m", b); err == nil && len(b) != 1 {
			t.Errorf("%x is a request", b)
		}
	}
}

// TrySend never waits, whether the peer reads or not, and what it has sent
// arrives whole.
func TestTrySend(t *testing.T) {
	a, b := unixPair(t)
	c := NewConn(Frames(a, "peer"))
	message := make([]byte, maxTry)
	sent := 0
	for c.TrySend(true, message) {
		sent++
	}
	if sent == 0 {
		t.Fatal("nothing was sent")
	}
	if c.TrySend(true, make([]byte, maxTry+1)) {
		t.Error("more than can be sent at once was")
	}
	peer := Frames(b, "peer")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range sent {
		got, isBinary, err := peer.Read(ctx)
		if err != nil || !isBinary || len(got) != len(message) {
			t.Fatalf("message %d of %d: %d bytes, %v", i, sent, len(got), err)
		}
	}
	if !c.TrySend(false, []byte("{}")) {
		t.Error("nothing is sent to a peer that has read everything")
	}
	if got, isBinary, err := peer.Read(ctx); err != nil || isBinary || string(got) != "{}" {
		t.Errorf("%q, %v, %v", got, isBinary, err)
	}
}
