package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"
)

// TestIntakeWaits fills an intake. What comes later waits, in order, and one
// message at a time goes beyond the total.
func TestIntakeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := NewIntake(0, 10)
		first, beyond := &held{intake: in}, &held{intake: in}
		for _, n := range []int64{4, 6} {
			if err := in.take(t.Context(), first, n); err != nil {
				t.Fatal(err)
			}
		}
		if in.try(beyond, 1) {
			t.Error("there was room beyond the total")
		}
		for range 3 {
			if err := in.take(t.Context(), beyond, 5); err != nil {
				t.Fatal(err)
			}
		}
		if in.Used() != 25 || in.Crowded() {
			t.Errorf("%d bytes used", in.Used())
		}
		gone, cancel := context.WithCancelCause(t.Context())
		var order []int
		done := make(chan error)
		later := []*held{{intake: in}, {intake: in}, {intake: in}}
		for i, h := range later {
			ctx := t.Context()
			if i == 0 {
				ctx = gone
			}
			go func() {
				err := in.take(ctx, h, 8)
				order = append(order, i)
				done <- err
			}()
			synctest.Wait()
		}
		if len(order) != 0 || !in.Crowded() {
			t.Fatalf("%v did not wait", order)
		}
		cancel(io.ErrNoProgress)
		if err := <-done; !errors.Is(err, io.ErrNoProgress) {
			t.Error(err)
		}
		beyond.release() // one of them goes beyond the total
		if err := <-done; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if len(order) != 2 || in.Used() != 18 {
			t.Errorf("order %v, %d bytes", order, in.Used())
		}
		first.release() // is not enough
		synctest.Wait()
		if len(order) != 2 || in.Used() != 8 {
			t.Errorf("order %v, %d bytes", order, in.Used())
		}
		later[order[1]].release()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, h := range later {
			h.release()
			h.release() // again is harmless
		}
		if got := in.Used(); got != 0 || in.Crowded() || order[0] != 0 || order[1] != 1 {
			t.Errorf("%d bytes left, order %v", got, order)
		}
	})
}

// keep is a handler that keeps requests until the test releases them.
type keep struct{ requests chan *Request }

func (k keep) Request(r *Request)                       { k.requests <- r }
func (keep) Notification(string, json.RawMessage) error { return nil }
func (keep) Malformed(error) error                      { return nil }

// TestReceivedMessagesCount sends messages of all kinds and sizes. A request
// counts until it is released, and others until they are handled.
func TestReceivedMessagesCount(t *testing.T) {
	const free, total = 1 << 10, 1 << 18
	in := NewIntake(free, total)
	h := keep{make(chan *Request)}
	ended := make(chan error)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		ended <- NewConn(in.WebSocket(c, nil, "test")).Serve(context.Background(), h)
	}))
	defer server.Close()
	dial := func() *websocket.Conn {
		t.Helper()
		c, _, err := websocket.Dial(t.Context(), strings.Replace(server.URL, "http", "ws", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := dial()
	send := func(format string, size int) {
		t.Helper()
		if err := c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, format, strings.Repeat("x", size))); err != nil {
			t.Fatal(err)
		}
	}
	const request, note = `{"id":1,"method":"m","params":"%s"}`, `{"method":"n","params":"%s"}`
	for _, size := range []int{10, free, 10, 100_000, 1000, total, 3 * total, 10} {
		send(note, size/2) // is handled before the request
		send(request, size)
		r := <-h.requests
		if r.Size() != size+2 {
			t.Fatalf("params of %d bytes, want %d", r.Size(), size+2)
		}
		if used := in.Used(); size > free && used < int64(size) || used > max(free, 4*int64(size)) && used > 2*maxGuess {
			t.Errorf("a request of %d bytes takes %d", size, used)
		}
		r.Release()
		if used := in.Used(); used != 0 {
			t.Errorf("%d bytes are left after a request of %d", used, size)
		}
	}
	send("%s", 10_000) // is malformed
	w, err := c.Writer(t.Context(), websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 500_000)); err != nil { // and no more
		t.Fatal(err)
	}
	_ = c.CloseNow()
	if err := <-ended; err == nil {
		t.Error("the connection ended without an error")
	}
	if used := in.Used(); used != 0 {
		t.Errorf("%d bytes are left after the connection", used)
	}
}
