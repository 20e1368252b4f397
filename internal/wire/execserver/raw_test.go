package execserver_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// rawClient is a WebSocket client that reads only when told to and answers no
// ping.
type rawClient struct {
	net.Conn
	r *bufio.Reader
}

func dialRaw(t *testing.T, url string) *rawClient {
	t.Helper()
	addr := strings.TrimPrefix(url, "ws://")
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(10 * patience)); err != nil {
		t.Fatal(err)
	}
	raw := &rawClient{c, bufio.NewReaderSize(c, 1<<20)}
	fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", addr)
	for line := ""; line != "\r\n"; {
		if line, err = raw.r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return raw
}

// initialize performs the handshake and returns the session.
func (c *rawClient) initialize(t *testing.T) string {
	t.Helper()
	c.send(t, `{"id":0,"method":"initialize","params":{"clientName":"raw"}}`)
	var r struct{ Result struct{ SessionID string } }
	b, _ := c.message(t)
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	c.send(t, `{"method":"initialized"}`)
	return r.Result.SessionID
}

// send sends a text message in one frame.
func (c *rawClient) send(t *testing.T, text string) {
	t.Helper()
	if _, err := c.Write(textFrame([]byte(text))); err != nil {
		t.Fatal(err)
	}
}

// textFrame makes a frame with a zero mask, which leaves the text unchanged.
func textFrame(b []byte) []byte {
	frame := []byte{0x81, 0x80}
	switch n := len(b); {
	case n < 126:
		frame[1] |= byte(n)
	case n < 1<<16:
		frame[1] |= 126
		frame = binary.BigEndian.AppendUint16(frame, uint16(n))
	default:
		frame[1] |= 127
		frame = binary.BigEndian.AppendUint64(frame, uint64(n))
	}
	return append(append(frame, 0, 0, 0, 0), b...)
}

// message returns the next message that is not a ping, and the size of its
// largest frame.
func (c *rawClient) message(t *testing.T) (msg []byte, largest int) {
	t.Helper()
	for {
		var head [2]byte
		if _, err := io.ReadFull(c.r, head[:]); err != nil {
			t.Fatal(err)
		}
		size := uint64(head[1])
		switch head[1] {
		case 126:
			var n [2]byte
			if _, err := io.ReadFull(c.r, n[:]); err != nil {
				t.Fatal(err)
			}
			size = uint64(binary.BigEndian.Uint16(n[:]))
		case 127:
			var n [8]byte
			if _, err := io.ReadFull(c.r, n[:]); err != nil {
				t.Fatal(err)
			}
			size = binary.BigEndian.Uint64(n[:])
		}
		start := len(msg)
		msg = append(msg, make([]byte, size)...)
		if _, err := io.ReadFull(c.r, msg[start:]); err != nil {
			t.Fatal(err)
		}
		if opcode := head[0] & 0x0f; opcode >= 8 { // control
			msg = msg[:start]
			continue
		}
		largest = max(largest, int(size))
		if head[0]&0x80 != 0 {
			return msg, largest
		}
	}
}

// answer returns the answer to a request and skips all other messages.
func (c *rawClient) answer(t *testing.T, id int) (r response, size, largest int) {
	t.Helper()
	prefix := fmt.Sprintf(`{"id":%d,"result":`, id)
	for {
		b, largest := c.message(t)
		if result, ok := bytes.CutPrefix(b, []byte(prefix)); ok {
			return response{ID: id, Result: bytes.TrimSuffix(result, []byte("}"))}, len(b), largest
		}
		if bytes.HasPrefix(b, []byte(`{"error":`)) {
			if err := json.Unmarshal(b, &r); err != nil {
				t.Fatal(err)
			}
			if r.ID == id {
				return r, len(b), largest
			}
		}
	}
}
