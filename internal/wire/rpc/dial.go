package rpc

import (
	"context"
	"errors"
	"io"
	"net"
)

// ErrEnded is the error of a read at the end of a connection of [Dial].
var ErrEnded = errors.New("the peer ended the connection")

// Dial connects for a WebSocket. A read at the end of the connection returns
// [ErrEnded] and never [io.EOF]: the WebSocket library takes io.EOF for the end
// of a message even inside a frame, and would return half a message as a whole
// one.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return endConn{c}, nil
}

// endConn is a connection that returns [ErrEnded] at its end.
type endConn struct{ net.Conn }

func (c endConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = ErrEnded
	}
	return n, err
}
