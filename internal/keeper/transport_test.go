package keeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// unixPair returns the two ends of a unix connection.
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

// noRPC is the part of a handler that is not expected to be called.
type noRPC struct{}

func (noRPC) Malformed(err error) error                           { return err }
func (noRPC) Notification(method string, _ json.RawMessage) error { return errors.New(method) }
func (noRPC) Request(r *rpc.Request)                              { r.Reply(nil, errors.New("unexpected")) }

// echoKeeper answers a start with its params, and refuses the params "fail".
type echoKeeper struct {
	noRPC
	t *transport
}

func (k *echoKeeper) binary(kind byte, b []byte) error {
	id, params, err := cutID(b)
	if kind != messageStart || err != nil {
		return fmt.Errorf("message of kind %d: %w", kind, err)
	}
	answer := func() {
		if string(params) == "fail" {
			k.t.refused(messageRefused, id, rpc.Errorf(rpc.CodeInvalidParams, "no"))
			return
		}
		k.t.started(id, func(dst []byte) []byte { return append(dst, params...) })
	}
	if !k.t.runInline(answer) {
		answer()
	}
	return nil
}

// transportPair returns the two ends of a connection. Both are being served
// until the test ends.
func transportPair(t *testing.T, pipes bool) (server, keeper *transport) {
	t.Helper()
	a, b := unixPair(t)
	accepted := make(chan error, 1)
	go func() {
		var err error
		keeper, err = acceptTransport(b)
		accepted <- err
	}()
	server, err := dialTransport(a, "keeper", pipes)
	if err != nil {
		t.Fatal(err)
	}
	if !pipes { // the keeper looks at the first byte
		if err := server.rpc.Notify("first", nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { server.serve(context.Background(), &echoKeeper{t: server}) })
	wg.Go(func() { keeper.serve(context.Background(), ignoreNotes{&echoKeeper{t: keeper}}) })
	t.Cleanup(func() {
		_ = server.close()
		_ = keeper.close()
		wg.Wait()
	})
	return server, keeper
}

type ignoreNotes struct{ *echoKeeper }

func (ignoreNotes) Notification(string, json.RawMessage) error { return nil }

func text(s string) func([]byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) { return append(dst, s...), nil }
}

func TestTransportStart(t *testing.T) {
	for _, pipes := range []bool{true, false} {
		t.Run(fmt.Sprintf("pipes=%v", pipes), func(t *testing.T) {
			server, keeper := transportPair(t, pipes)
			for _, s := range []string{"", "x", "not \xff UTF-8"} {
				got, err := server.start(t.Context(), text(s))
				if err != nil || string(got) != s {
					t.Errorf("%q: %q, %v", s, got, err)
				}
			}
			var e *rpc.Error
			if _, err := server.start(t.Context(), text("fail")); !errors.As(err, &e) || e.Code != rpc.CodeInvalidParams {
				t.Errorf("a refused start: %v", err)
			}
			broken := errors.New("broken")
			if _, err := server.start(t.Context(), func([]byte) ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
				t.Errorf("a start that cannot be encoded: %v", err)
			}
			server.mu.Lock()
			n := len(server.starts)
			server.mu.Unlock()
			if n != 0 {
				t.Errorf("%d starts are still registered", n)
			}
			_ = keeper.close()
			if _, err := server.start(t.Context(), text("x")); !errors.Is(err, rpc.ErrConnClosed) {
				t.Errorf("a start on a closed connection: %v", err)
			}
		})
	}
}

// TestTransportHammer mixes starts of many goroutines with JSON-RPC calls.
func TestTransportHammer(t *testing.T) {
	server, _ := transportPair(t, true)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				s := fmt.Sprintf("%d/%d", g, i)
				if got, err := server.start(t.Context(), text(s)); err != nil || string(got) != s {
					t.Errorf("start %s: %q, %v", s, got, err)
					return
				}
				var e *rpc.Error
				if err := server.rpc.Call(t.Context(), "m", nil, nil); !errors.As(err, &e) || e.Message != "unexpected" {
					t.Errorf("call %s: %v", s, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// slowHandler blocks in its first message until released.
type slowHandler struct {
	noRPC
	received chan string
	release  chan struct{}
}

func (h *slowHandler) binary(_ byte, b []byte) error {
	h.received <- string(b)
	if string(b) == "first" {
		<-h.release
	}
	return nil
}

// While one goroutine handles a message, another can take over reading.
func TestTransportTakeOver(t *testing.T) {
	a, b := unixPair(t)
	tr := newTransport(newFrames(b, "peer"))
	h := &slowHandler{received: make(chan string), release: make(chan struct{})}
	served := make(chan struct{})
	go func() {
		defer close(served)
		tr.serve(t.Context(), h)
	}()
	peer := newFrames(a, "peer")
	for i, text := range []string{"first", "second", "third"} {
		if err := peer.Write(t.Context(), true, []byte{messageUpdate}, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := <-h.received; got != text {
			t.Fatalf("received %q, want %q", got, text)
		}
		if i == 0 {
			tr.nextReader()
		}
	}
	close(h.release)
	if err := peer.Write(t.Context(), true, []byte{messageUpdate}, []byte("fourth")); err != nil {
		t.Fatal(err)
	}
	if got := <-h.received; got != "fourth" {
		t.Errorf("received %q after the first was handled", got)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
	if err := tr.rpc.Err(); !errors.Is(err, io.EOF) {
		t.Errorf("serve ended with %v", err)
	}
}

// An answer without a start, or without an id, ends the connection.
func TestTransportRefusesUnknownAnswers(t *testing.T) {
	for _, b := range [][]byte{{}, {messageStarted}, {messageStarted, 0x80}, {messageStarted, 7}, {messageRefused, 7, '{', '}'}, {messageRefused, 7}} {
		tr := newTransport(newFrames(nil, "none"))
		if tr.receive(&slowHandler{}, b, true) == nil {
			t.Errorf("message %x was accepted", b)
		}
	}
}

// tryWrite never waits, and a message it accepts arrives whole.
func TestFramesTryWrite(t *testing.T) {
	a, b := unixPair(t)
	f, peer := newFrames(a, "peer"), newFrames(b, "peer")
	message := bytes.Repeat([]byte{7}, maxTry)
	sent := 0
	for f.tryWrite(true, message) {
		sent++
	}
	if sent == 0 {
		t.Fatal("nothing was written")
	}
	if f.tryWrite(true, make([]byte, maxTry+1)) {
		t.Error("a message that is too large was written")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range sent {
		got, isBinary, err := peer.Read(ctx)
		if err != nil || !isBinary || !bytes.Equal(got, message) {
			t.Fatalf("message %d of %d: %d bytes, %v", i, sent, len(got), err)
		}
	}
	if !f.tryWrite(false, []byte("{}")) {
		t.Error("nothing is written to a peer that has read everything")
	}
	if got, isBinary, err := peer.Read(ctx); err != nil || isBinary || string(got) != "{}" {
		t.Errorf("%q, %v, %v", got, isBinary, err)
	}
}

// writeSoon never waits, holds a bounded number of bytes, and what it accepts arrives
// whole and in order, unless the connection ends before.
func TestFramesWriteSoon(t *testing.T) {
	a, b := unixPair(t)
	f, peer := newFrames(a, "peer"), newFrames(b, "peer")
	sent := 0
	fill := func() {
		for f.writeSoon(true, fmt.Appendf(nil, "%d%512s", sent, "")) {
			sent++
		}
	}
	for taken := 0; taken < 2000; { // it is written while it is filled
		fill()
		for ; taken < sent; taken++ {
			got, isBinary, err := peer.Read(t.Context())
			if want := fmt.Sprintf("%d%512s", taken, ""); err != nil || !isBinary || string(got) != want {
				t.Fatalf("message %d: %q, %v", taken, got, err)
			}
		}
	}
	polltest.Until(t, "a peer that takes nothing", func() bool {
		fill()
		f.soonMu.Lock()
		defer f.soonMu.Unlock()
		return len(f.soon)+600 > maxSoon && f.flushing
	})
	if f.writeSoon(true, make([]byte, maxSoon)) {
		t.Error("a message that there is no room for was accepted")
	}
	_ = f.Close()
	f.end()
	if f.writeSoon(true, nil) {
		t.Error("a message was accepted after the end")
	}
}

// A start without an id ends the connection.
func TestTransportRefusesStartWithoutID(t *testing.T) {
	for _, b := range [][]byte{{}, {0x80}} {
		if _, _, err := cutID(b); err == nil {
			t.Errorf("cutID(%x): no error", b)
		}
		if err := new(serverConn).binary(messageStart, b); err == nil {
			t.Errorf("start %x was accepted", b)
		}
	}
	if id, rest, err := cutID([]byte{7, 1}); id != 7 || len(rest) != 1 || err != nil {
		t.Errorf("cutID = %d, %x, %v", id, rest, err)
	}
}
