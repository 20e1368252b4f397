// Package bulkconn has connections below TLS that move much with few system calls. TLS
// reads and writes a record of 16 KiB at a time; here a read takes all that there is, and
// records are collected and written at once.
package bulkconn

import (
	"bufio"
	"net"
	"sync"
)

// Conn is a connection for much data. It takes some memory.
type Conn struct {
	net.Conn
	in *bufio.Reader

	mu    sync.Mutex
	held  bool
	out   []byte // records that wait for Flush
	spare []byte // memory for further ones
}

// Size is how much is read and should be written at once.
const Size = 256 << 10

// New returns such a connection over another one.
func New(c net.Conn) *Conn {
	return &Conn{Conn: c, in: bufio.NewReaderSize(c, Size)}
}

// Read implements [net.Conn].
func (c *Conn) Read(p []byte) (int, error) { return c.in.Read(p) }

// Write implements [net.Conn]. Between Hold and Flush it never waits.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.held {
		c.out = append(c.out, p...)
		c.mu.Unlock()
		return len(p), nil
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// Hold has the writes that follow wait for Flush. One goroutine at a time calls Hold
// and then Flush.
func (c *Conn) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
}

// Flush writes what waits.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > 0 { // also what comes while the rest is written
		out := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		_, err := c.Conn.Write(out)
		c.mu.Lock()
		c.spare = out
		if err != nil {
			return err
		}
	}
	c.held = false
	return nil
}

// Listen returns a listener whose connections are of [New].
func Listen(l net.Listener) net.Listener { return listener{l} }

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return New(c), nil
}
