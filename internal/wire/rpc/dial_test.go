package rpc

import (
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
)

// The connection of a killed server ends without an error, possibly inside a
// frame. The part of a message must not pass for a whole one.
func TestReadPartialMessage(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n",
			base64.StdEncoding.EncodeToString(sum[:]))
		// The first 512 bytes of a binary frame of 2000: as many as the
		// first buffer of a reader holds.
		buf.Write([]byte{0x82, 126, 2000 >> 8, 2000 & 0xff})
		buf.Write(make([]byte, 512))
		if err := buf.Flush(); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	ws, _, err := websocket.Dial(t.Context(), s.URL, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{DialContext: Dial}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, _, err := WebSocket(ws, "server").Read(t.Context())
	if !errors.Is(err, ErrEnded) {
		t.Fatalf("read %d bytes of 2000: %v", len(b), err)
	}
}
