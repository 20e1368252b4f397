package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

// pipe returns a connection whose server has sent these bytes and closed.
func pipe(t *testing.T, sent []byte) (c *wsConn, received func() []byte) {
	client, server := net.Pipe()
	got := make(chan []byte, 1)
	go func() {
		b, _ := io.ReadAll(server) // ends when the client closes
		got <- b
	}()
	go func() {
		server.Write(sent)
		server.Write([]byte{0x80 | opClose, 0})
	}()
	t.Cleanup(func() { server.Close() })
	return &wsConn{conn: client, r: bufio.NewReaderSize(client, 64)}, func() []byte {
		client.Close()
		return <-got
	}
}

func TestReadMessage(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 20)
	var sent []byte
	sent = append(sent, 0x80|opText, 2, 'h', 'i')
	sent = append(sent, 0x80|opText, 0)
	sent = append(append(sent, 0x80|opBinary, 126, 0, byte(len(long))), long...) // exceeds the buffer
	sent = append(sent, opText, 1, 'a', 0x80|opPing, 1, 'p', opContinuation, 1, 'b', 0x80|opContinuation, 1, 'c')
	sent = append(sent, 0x80|opText, 127, 0, 0, 0, 0, 0, 0, 0, 1, '!')
	c, received := pipe(t, sent)
	for _, want := range []string{"hi", "", string(long), "abc", "!"} {
		got, err := c.readMessage()
		if err != nil || string(got) != want {
			t.Fatalf("read %q, %v; want %q", got, err, want)
		}
	}
	if got, err := c.readMessage(); !errors.Is(err, errClosed) {
		t.Errorf("read %q, %v after the end", got, err)
	}
	if got, want := received(), []byte{0x80 | opPong, 0x80 | 1, 0, 0, 0, 0, 'p'}; !bytes.Equal(got, want) {
		t.Errorf("answered the ping with %x, want %x", got, want)
	}
}

func TestReadMessageRefuses(t *testing.T) {
	for _, sent := range [][]byte{
		{0x80 | 0x40 | opText, 0},                    // reserved bit
		{0x80 | opText, 0x80, 0, 0, 0, 0},            // masked
		{0x80 | 0x3, 0},                              // unknown type
		{0x80 | opText, 127, 1, 0, 0, 0, 0, 0, 0, 0}, // far too long
	} {
		c, received := pipe(t, sent)
		if got, err := c.readMessage(); err == nil || errors.Is(err, errClosed) {
			t.Errorf("frame %x was read as %q, %v", sent, got, err)
		}
		received()
	}
}
