package rpc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/coder/websocket"
)

// FuzzLines checks that a stream is divided into its lines: none is invented,
// lost or has a line end.
func FuzzLines(f *testing.F) {
	f.Add([]byte("{\"id\":1}\r\n\n{\"method\":\"x\"}"))
	f.Add([]byte("\r\r\n\n\n"))
	f.Add(bytes.Repeat([]byte("x"), 70_000))
	f.Fuzz(func(t *testing.T, stream []byte) {
		var want [][]byte
		for line := range bytes.SplitSeq(stream, []byte("\n")) {
			if line = bytes.TrimRight(line, "\r"); len(line) > 0 {
				want = append(want, line)
			}
		}
		l := Lines(bytes.NewReader(stream), io.Discard, "fuzz")
		for _, line := range want {
			got, binary, err := l.Read(t.Context())
			if err != nil || binary || !bytes.Equal(got, line) {
				t.Fatalf("read %q, %v, %v; want %q", got, binary, err, line)
			}
		}
		if got, _, err := l.Read(t.Context()); !errors.Is(err, io.EOF) {
			t.Fatalf("read %q, %v after the end", got, err)
		}
	})
}

// hijacked is the response writer of a connection that becomes a WebSocket.
type hijacked struct {
	http.ResponseWriter
	conn net.Conn
}

func (h hijacked) Header() http.Header { return make(http.Header) }
func (h hijacked) WriteHeader(int)     {}

func (h hijacked) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// FuzzWebSocket sends bytes to a WebSocket after the handshake. The server reads
// whole messages and then an error.
func FuzzWebSocket(f *testing.F) {
	f.Add([]byte("\x81\x85\x00\x00\x00\x00hello\x82\x80\x00\x00\x00\x00"))                         // a text and an empty binary message
	f.Add([]byte("\x01\x83\x01\x02\x03\x04abc\x80\x82\x00\x00\x00\x00de\x88\x80\x00\x00\x00\x00")) // two fragments, then a close
	f.Add([]byte("\x89\x80\x00\x00\x00\x00\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("\x81\x05hello"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer client.Close()
			go func() { _, _ = io.Copy(io.Discard, client) }()
			_, _ = client.Write(stream)
		}()
		req, err := http.NewRequest(http.MethodGet, "http://x/", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
		} {
			req.Header.Set(name, value)
		}
		c, err := websocket.Accept(hijacked{conn: server}, req, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := WebSocket(c, "fuzz")
		size := 0
		for {
			b, _, err := w.Read(context.Background())
			if err != nil {
				break
			}
			if size += len(b); size > len(stream) {
				t.Fatalf("%d bytes of messages in %d bytes", size, len(stream))
			}
		}
		_ = w.Close()
		<-done
	})
}

// quiet handles every message and keeps nothing.
type quiet struct{ binary int }

func (quiet) Request(r *Request)                         { r.Reply(len(r.Params), nil) }
func (quiet) Notification(string, json.RawMessage) error { return nil }
func (quiet) Malformed(error) error                      { return nil }
func (q *quiet) Binary(b []byte) error                   { q.binary += len(b); return nil }

// FuzzReceive gives messages to a connection and checks that every answer it
// sends is a message.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"x","params":{"a":[1]}}`), false)
	f.Add([]byte(`{"id":"a","result":{}}`), false)
	f.Add([]byte(`{"method":"n"}`), true)
	f.Fuzz(func(t *testing.T, b []byte, binary bool) {
		var sent bytes.Buffer
		c := NewConn(Lines(bytes.NewReader(nil), &sent, "fuzz"))
		h := new(quiet)
		if err := c.Receive(h, bytes.Clone(b), binary); err != nil {
			c.End(err)
		}
		if binary && h.binary != len(b) {
			t.Errorf("%d bytes of %d were handled", h.binary, len(b))
		}
		for line := range bytes.Lines(sent.Bytes()) {
			if _, err := Parse(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				t.Errorf("sent %q: %v", line, err)
			}
		}
	})
}
