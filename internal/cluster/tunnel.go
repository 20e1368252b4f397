package cluster

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// refusalText is how much of the reason of a refusal is read.
const refusalText = 1 << 10

// upgraded sends a request to a relay, and returns the connection that it became.
func upgraded(ctx context.Context, c net.Conn, path string) (net.Conn, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+serverName+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", relayProtocol)
	if err := req.Write(c); err != nil {
		return nil, err
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return &tunnelConn{Conn: c, in: in}, nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, refusalText))
	err = errors.Join(err, resp.Body.Close())
	if err != nil || len(text) == 0 {
		text = []byte("the relay answered " + resp.Status)
	}
	return nil, &refusedError{errors.New(strings.TrimSpace(string(text))), resp.StatusCode}
}

// refusedError is the answer of a relay that does not do what it was asked for.
type refusedError struct {
	err    error
	status int
}

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// tunnelConn is a connection through a relay.
type tunnelConn struct {
	net.Conn
	in *bufio.Reader // may have read what came with the answer
}

func (c *tunnelConn) Read(p []byte) (int, error) {
	if c.in.Buffered() > 0 {
		return c.in.Read(p)
	}
	return c.Conn.Read(p)
}

// NetConn returns the connection below TLS.
func (c *tunnelConn) NetConn() net.Conn {
	if t, ok := c.Conn.(interface{ NetConn() net.Conn }); ok {
		return t.NetConn()
	}
	return c.Conn
}

// SyscallConn returns the connection to the relay, for those who wait until they can
// write.
func (c *tunnelConn) SyscallConn() (syscall.RawConn, error) {
	if s, ok := c.NetConn().(syscall.Conn); ok {
		return s.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}
