package rpc

import (
	"context"
	"crypto/tls"
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
	return Plain(c), nil
}

// Plain makes a connection like one of [Dial] of another one.
func Plain(c net.Conn) net.Conn { return endConn{c} }

// DialTLS connects like [Dial] with TLS. The server must prove to be the host of
// addr, unless the configuration names another.
func DialTLS(ctx context.Context, network, addr string, config *tls.Config) (net.Conn, error) {
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return endConn{c}, nil
}

// TLS makes a connection like one of [DialTLS] of another one, which it closes on failure.
// Addr is the host and port that was asked for.
func TLS(ctx context.Context, c net.Conn, addr string, config *tls.Config) (net.Conn, error) {
	if config.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		config = config.Clone()
		config.ServerName = host
	}
	t := tls.Client(c, config)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return endConn{t}, nil
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

// NetConn returns the connection itself.
func (c endConn) NetConn() net.Conn { return c.Conn }
