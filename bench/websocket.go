package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// maxMessage limits a message, as both servers do.
const maxMessage = 64 << 20

// The frame types of RFC 6455.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xA
)

// errClosed is returned once the server has closed the connection.
var errClosed = errors.New("the server closed the connection")

// wsConn is the client side of a WebSocket, made for measuring: it returns
// messages inside its read buffer and has no goroutines. It is not safe for
// concurrent use.
type wsConn struct {
	conn net.Conn
	r    *bufio.Reader
	held int    // bytes of r that the last message occupies
	long []byte // a message that is not contiguous in r
	out  []byte
}

// dialWebSocket connects to a ws URL. With quick set it acknowledges every
// segment at once; a peer that leaves Nagle's algorithm on waits for that.
func dialWebSocket(ctx context.Context, rawURL string, quick bool) (*wsConn, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if quick {
		conn = &quickConn{conn.(*net.TCPConn)}
	}
	c := &wsConn{conn: conn, r: bufio.NewReaderSize(conn, 256<<10)}
	if err := c.upgrade(u.Host); err != nil {
		conn.Close()
		return nil, fmt.Errorf("dial %s: %w", rawURL, err)
	}
	return c, nil
}

func (c *wsConn) upgrade(host string) error {
	if err := c.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: c3Bvb2wgYmVuY2htYXJrIQ==\r\n\r\n", host)
	if err != nil {
		return err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("upgrade: %s", resp.Status)
	}
	return c.conn.SetDeadline(time.Time{})
}

// readMessage returns the next message. It is valid until the next call.
func (c *wsConn) readMessage() ([]byte, error) {
	if _, err := c.r.Discard(c.held); err != nil {
		return nil, err
	}
	c.held = 0
	c.long = c.long[:0]
	for {
		op, fin, n, err := c.readHeader()
		if err != nil {
			return nil, err
		}
		switch op {
		case opText, opBinary, opContinuation:
			if fin && len(c.long) == 0 && n <= c.r.Size() {
				c.held = n
				return c.r.Peek(n)
			}
			if len(c.long)+n > maxMessage {
				return nil, fmt.Errorf("message exceeds %d bytes", maxMessage)
			}
			at := len(c.long)
			c.long = append(c.long, make([]byte, n)...)
			if _, err := io.ReadFull(c.r, c.long[at:]); err != nil {
				return nil, err
			}
			if fin {
				return c.long, nil
			}
		case opPing, opPong:
			payload, err := c.r.Peek(n)
			if err != nil {
				return nil, err
			}
			if op == opPing {
				if err := c.writeFrame(opPong, payload); err != nil {
					return nil, err
				}
			}
			if _, err := c.r.Discard(n); err != nil {
				return nil, err
			}
		case opClose:
			return nil, errClosed
		default:
			return nil, fmt.Errorf("frame of unknown type %#x", op)
		}
	}
}

// readHeader consumes a frame header.
func (c *wsConn) readHeader() (op byte, fin bool, n int, err error) {
	h, err := c.r.Peek(2)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = errClosed
		}
		return 0, false, 0, err
	}
	op, fin = h[0]&0x0f, h[0]&0x80 != 0
	if h[0]&0x70 != 0 || h[1]&0x80 != 0 {
		return 0, false, 0, fmt.Errorf("frame with reserved bits or a mask: %#x %#x", h[0], h[1])
	}
	n, size := int(h[1]), 2
	switch n {
	case 126:
		size = 4
		if h, err = c.r.Peek(size); err != nil {
			return 0, false, 0, err
		}
		n = int(binary.BigEndian.Uint16(h[2:]))
	case 127:
		size = 10
		if h, err = c.r.Peek(size); err != nil {
			return 0, false, 0, err
		}
		long := binary.BigEndian.Uint64(h[2:])
		if long > maxMessage {
			return 0, false, 0, fmt.Errorf("frame of %d bytes", long)
		}
		n = int(long)
	}
	_, err = c.r.Discard(size)
	return op, fin, n, err
}

// writeFrame sends one frame. The mask is zero, because there are no proxies on
// the loopback.
func (c *wsConn) writeFrame(op byte, payload []byte) error {
	c.out = append(c.out[:0], 0x80|op)
	switch n := len(payload); {
	case n < 126:
		c.out = append(c.out, 0x80|byte(n))
	case n < 1<<16:
		c.out = append(c.out, 0x80|126)
		c.out = binary.BigEndian.AppendUint16(c.out, uint16(n))
	default:
		c.out = append(c.out, 0x80|127)
		c.out = binary.BigEndian.AppendUint64(c.out, uint64(n))
	}
	c.out = append(c.out, 0, 0, 0, 0)
	c.out = append(c.out, payload...)
	_, err := c.conn.Write(c.out)
	return err
}

func (c *wsConn) close() error { return c.conn.Close() }

// quickConn is a TCP connection that never delays an acknowledgement.
type quickConn struct{ *net.TCPConn }

func (c *quickConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if err != nil {
		return n, err
	}
	// The kernel clears the option by itself, so set it after every read.
	return n, c.acknowledge()
}

func (c *quickConn) acknowledge() error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var optErr error
	err = raw.Control(func(fd uintptr) {
		optErr = setQuickAck(int(fd))
	})
	return errors.Join(err, optErr)
}
