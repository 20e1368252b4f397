package rpc

import (
	"context"
	"errors"
	"io"
	"net"
)

// ErrEnded is what reading from a connection of [Dial] returns at its end.
var ErrEnded = errors.New("the peer ended the connection")

// Dial connects for a WebSocket. Reading at the end returns [ErrEnded] and
// never [io.EOF], which the WebSocket library takes for the end of a message,
// even in the middle of a frame: half a message would pass for a whole one.
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return ending{c}, nil
}

type ending struct{ net.Conn }

func (c ending) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = ErrEnded
	}
	return n, err
}
