package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// echo is a handler whose answer depends on the method.
type echo struct{}

func (echo) Request(r *Request) {
	switch r.Method {
	case "echo":
		r.Reply(r.Params, nil)
	case "fail":
		r.Reply(nil, fmt.Errorf("wrapped: %w", &Error{Code: 7, Message: "seven", Data: json.RawMessage(`{"a":1}`)}))
	case "plain":
		r.Reply(nil, errors.New("plain"))
	case "bad":
		r.Reply(func() {}, nil)
	case "large":
		r.Reply(json.RawMessage(`"`+strings.Repeat("x", MaxMessage)+`"`), nil)
	}
}
func (echo) Notification(method string, _ json.RawMessage) error { return errors.New(method) }
func (echo) Malformed(err error) error                           { return err }

// pair returns the two ends of a connection.
func pair(t *testing.T) (client, server *Conn) {
	a, b := net.Pipe()
	client, server = NewConn(Lines(a, a, "client")), NewConn(Lines(b, b, "server"))
	done := make(chan struct{}, 2)
	for _, c := range []*Conn{client, server} {
		go func() {
			_ = c.Serve(context.Background(), echo{})
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		<-done
		<-done
	})
	return client, server
}

func TestCall(t *testing.T) {
	client, _ := pair(t)
	var got []int
	if err := client.Call(t.Context(), "echo", []int{1, 2}, &got); err != nil || len(got) != 2 {
		t.Errorf("echo: %v, %v", got, err)
	}
	var e *Error
	if err := client.Call(t.Context(), "fail", nil, nil); !errors.As(err, &e) || e.Code != 7 || e.Message != "seven" || string(e.Data) != `{"a":1}` {
		t.Errorf("fail: %v", err)
	}
	for method, want := range map[string]string{"plain": "plain", "bad": "unsupported type"} {
		if err := client.Call(t.Context(), method, nil, nil); !errors.As(err, &e) || e.Code != CodeInternal || !strings.Contains(e.Message, want) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := client.Call(t.Context(), "large", nil, nil); !errors.As(err, &e) || e.Code != CodeInternal || !strings.Contains(e.Message, "ask for less") {
		t.Errorf("large: %v", err)
	}
}

// Many calls wait without a goroutine, and each hears once: of its answer, or of the end.
func TestGo(t *testing.T) {
	client, server := pair(t)
	answers := make(chan string, 4)
	call := func(method string, params any) error {
		return client.Go(method, params, func(result json.RawMessage, err error) {
			if err != nil {
				result = json.RawMessage(err.Error())
			}
			answers <- method + ": " + string(result)
		})
	}
	for method, want := range map[string]string{"echo": "[1]", "plain": "plain (-32603)"} {
		if err := call(method, []int{1}); err != nil {
			t.Fatal(err)
		}
		if got := <-answers; !strings.HasPrefix(got, method+": ") || !strings.HasSuffix(got, want) {
			t.Errorf("%s is answered with %s", method, got)
		}
	}
	for _, method := range []string{"silent", "silence"} {
		if err := call(method, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Call(t.Context(), "echo", nil, nil); err != nil { // both were sent
		t.Fatal(err)
	}
	_ = server.Close()
	for range 2 {
		if got := <-answers; !strings.Contains(got, ErrConnClosed.Error()) {
			t.Errorf("after the end: %s", got)
		}
	}
	if err := call("echo", nil); !errors.Is(err, ErrConnClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := call("echo", func() {}); err == nil || errors.Is(err, ErrConnClosed) {
		t.Errorf("what cannot be encoded: %v", err)
	}
	select {
	case got := <-answers:
		t.Errorf("heard twice: %s", got)
	default:
	}
}

func TestLateAnswerOfCancelledCall(t *testing.T) {
	client, server := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Call(ctx, "echo", nil, nil); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := client.Call(t.Context(), "echo", nil, nil); err != nil {
		t.Errorf("after the answer of a cancelled call: %v", err)
	}
	_ = server.Close()
	if err := client.Call(t.Context(), "echo", nil, nil); !errors.Is(err, ErrConnClosed) {
		t.Errorf("closed: %v", err)
	}
}

func TestUnknownAnswerEndsConnection(t *testing.T) {
	for _, msg := range []string{`{"id":99,"result":1}`, `{"id":"x","result":1}`, `{"id":1,"error":{"code":1,"message":""}}`} {
		client, server := pair(t)
		if err := client.Send(false, []byte(msg)); err != nil {
			t.Fatal(err)
		}
		<-server.Done()
		if err := server.Err(); err == nil || !strings.Contains(err.Error(), "never sent") {
			t.Errorf("%s: %v", msg, err)
		}
	}
}

// binaryEcho is a handler that also accepts binary messages.
type binaryEcho struct {
	echo
	got []string
}

func (h *binaryEcho) Binary(b []byte) error {
	h.got = append(h.got, string(b))
	return nil
}

func TestReceiveBinary(t *testing.T) {
	c := NewConn(Lines(strings.NewReader(""), io.Discard, "test"))
	h := new(binaryEcho)
	if err := c.Receive(h, []byte("\xff"), true); err != nil || len(h.got) != 1 || h.got[0] != "\xff" {
		t.Errorf("binary handler got %q, %v", h.got, err)
	}
	if err := c.Receive(echo{}, []byte(`{"method":"note"}`), true); err == nil || err.Error() != "note" {
		t.Errorf("plain handler: %v", err)
	}
}

func TestEndOnce(t *testing.T) {
	c := NewConn(Lines(strings.NewReader(""), io.Discard, "test"))
	first := errors.New("first")
	c.End(first)
	c.End(errors.New("second"))
	<-c.Done()
	if err := c.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrConnClosed) || !errors.Is(err, first) {
		t.Errorf("call: %v", err)
	}
}

func TestLines(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
		err      error
	}{
		{"lines", "a\nb\n", []string{"a", "b"}, io.EOF},
		{"carriage returns", "a\r\nb\r\n", []string{"a", "b"}, io.EOF},
		{"empty lines", "\n\r\n\na\n\n", []string{"a"}, io.EOF},
		{"no newline at the end", "a\nb", []string{"a", "b"}, io.EOF},
		{"longer than the buffer", strings.Repeat("x", 200_000) + "\ny\n", []string{strings.Repeat("x", 200_000), "y"}, io.EOF},
		{"longest", strings.Repeat("x", MaxMessage) + "\r\n", []string{strings.Repeat("x", MaxMessage)}, io.EOF},
		{"too long", "a\n" + strings.Repeat("x", MaxMessage+1) + "\n", []string{"a"}, errLineTooLong},
		{"nothing", "", nil, io.EOF},
	}
	for _, tt := range tests {
		l := Lines(strings.NewReader(tt.in), io.Discard, "test")
		for _, want := range tt.want {
			b, binary, err := l.Read(t.Context())
			if string(b) != want || binary || err != nil {
				t.Errorf("%s: %.40q, %v, %v", tt.name, b, binary, err)
			}
		}
		if b, _, err := l.Read(t.Context()); !errors.Is(err, tt.err) {
			t.Errorf("%s: ends with %.40q, %v", tt.name, b, err)
		}
	}
	var out strings.Builder
	l := Lines(strings.NewReader(""), &out, "test")
	if err := l.Write(t.Context(), false, []byte("a"), []byte("b")); err != nil || out.String() != "ab\n" {
		t.Errorf("wrote %q, %v", out.String(), err)
	}
	if l.Write(t.Context(), true, []byte("a")) == nil {
		t.Error("Lines accepted a binary message")
	}
}

// pingTransport is a transport that only answers pings.
type pingTransport struct {
	Transport
	ping func(context.Context) error
}

func (p pingTransport) Ping(ctx context.Context) error { return p.ping(ctx) }

func TestPingWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, over := errors.New("lost"), errors.New("over")
		ended, end := context.WithCancelCause(t.Context())
		end(over)
		for _, tt := range []struct {
			ctx  context.Context
			ping func(context.Context) error
			want error
		}{
			{t.Context(), func(context.Context) error { return nil }, nil},
			{t.Context(), func(ctx context.Context) error { // the peer is busy
				<-ctx.Done()
				return fmt.Errorf("wait for pong: %w", ctx.Err())
			}, nil},
			{t.Context(), func(context.Context) error { return lost }, lost},
			{ended, func(ctx context.Context) error { return ctx.Err() }, over},
		} {
			if err := PingWithin(tt.ctx, pingTransport{ping: tt.ping}, time.Second); !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		}
	})
}
