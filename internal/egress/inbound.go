package egress

import (
	"net"
	"sync"
	"time"
)

// inbound is a connection of the run. Its first byte was read to see which protocol
// it speaks.
type inbound struct {
	*net.TCPConn
	proxy *Proxy
	first []byte // not yet read again
	end   sync.Once
}

// Read implements [net.Conn].
func (c *inbound) Read(b []byte) (int, error) {
	if len(c.first) > 0 && len(b) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.TCPConn.Read(b)
}

// Close closes the connection and makes room for another one.
func (c *inbound) Close() error {
	err := net.ErrClosed
	c.end.Do(func() {
		c.proxy.mu.Lock()
		delete(c.proxy.open, c)
		c.proxy.mu.Unlock()
		err = c.TCPConn.Close()
		<-c.proxy.room
		c.proxy.work.Done()
	})
	return err
}

// take serves a connection that has room.
func (p *Proxy) take(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		_ = nc.Close()
		<-p.room
		return
	}
	c := &inbound{TCPConn: tcp, proxy: p}
	p.work.Add(1) // while the goroutine that accepts is counted
	if !p.own(c) {
		return
	}
	if p.o.Forward != "" {
		p.work.Go(func() { p.forward(c) })
		return
	}
	p.work.Go(func() {
		var first [1]byte
		if c.SetReadDeadline(time.Now().Add(headerTimeout)) != nil {
			_ = c.Close()
			return
		}
		if n, err := tcp.Read(first[:]); n != 1 || err != nil || c.SetReadDeadline(time.Time{}) != nil {
			_ = c.Close()
			return
		}
		switch {
		case first[0] == socksVersion && !p.o.NoSOCKS:
			p.serveSOCKS(c)
		case first[0] == socksVersion, first[0] == socksVersion-1:
			_ = c.Close() // SOCKS4 has no names
		default:
			c.first = first[:]
			if !p.requests.give(c) {
				_ = c.Close()
			}
		}
	})
}

// handoff is the listener of the HTTP server: its connections were accepted already.
type handoff struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newHandoff() *handoff {
	return &handoff{conns: make(chan net.Conn), done: make(chan struct{})}
}

// give reports whether the server took the connection.
func (h *handoff) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.done:
		return false
	}
}

// Accept implements [net.Listener].
func (h *handoff) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handoff) Close() error {
	h.once.Do(func() { close(h.done) })
	return nil
}

// Addr implements [net.Listener].
func (h *handoff) Addr() net.Addr { return &net.TCPAddr{} }
