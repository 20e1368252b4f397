// Package netcut is a loopback TCP proxy for tests that resets connections at
// any byte.
package netcut

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Direction is a direction of bytes through a [Proxy].
type Direction int

// The directions of a connection.
const (
	ToServer Direction = iota
	ToClient
)

// Proxy forwards TCP connections on loopback to one address and breaks them on
// demand like a failing network: with a reset at any byte.
type Proxy struct {
	target string
	ln     net.Listener
	ctx    context.Context // ends with the proxy; cancels dials
	cancel context.CancelFunc
	wg     sync.WaitGroup // the accept loop and its connections

	mu       sync.Mutex
	conns    map[*proxyConn]struct{}
	count    int           // number of forwarded connections
	changed  chan struct{} // closed and replaced when count grows
	refusing bool
	refused  func(from net.Addr) bool // nil for nobody
	closed   bool
	trip     *trip            // the pending cut, or nil
	stalled  [2]chan struct{} // by direction; nil while bytes flow
	delays   [2]time.Duration // by direction
}

// proxyConn is one forwarded connection. Its server side is nil until dialed.
type proxyConn struct {
	client, server *net.TCPConn
}

// trip is a cut that waits for bytes.
type trip struct {
	dir  Direction
	left int64
	done chan struct{}
}

// NewProxy listens on a free loopback port and forwards to target, a host:port.
func NewProxy(target string) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target:  target,
		ln:      ln,
		conns:   make(map[*proxyConn]struct{}),
		changed: make(chan struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the host:port clients connect to.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Cut resets every connection, on both sides, and returns their number. The
// proxy forwards new connections unless it refuses them.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutLocked()
}

// CutAfter schedules a [Proxy.Cut] after n more bytes in direction dir, counted
// over all connections. The connection that reaches the count ends exactly
// there. The channel is closed after the cut. A later call replaces a pending
// cut, whose channel stays open.
func (p *Proxy) CutAfter(dir Direction, n int64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &trip{dir: dir, left: n, done: make(chan struct{})}
	if n > 0 {
		p.trip = t
		return t.done
	}
	p.trip = nil
	p.cutLocked()
	close(t.done)
	return t.done
}

// Refuse makes p reset new connections at once. Existing connections continue.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
}

// Admit undoes Refuse.
func (p *Proxy) Admit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
}

// RefuseFrom makes p reset new connections from addresses for which refused reports
// true; nil undoes it.
func (p *Proxy) RefuseFrom(refused func(from net.Addr) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refused = refused
}

// Count returns the number of connections forwarded since the start, without
// refused ones.
func (p *Proxy) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}

// Open returns the number of open connections.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// WaitCount waits until at least n connections have been forwarded.
func (p *Proxy) WaitCount(ctx context.Context, n int) error {
	for {
		p.mu.Lock()
		count, changed := p.count, p.changed
		p.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-p.ctx.Done():
			return net.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close stops listening, cuts every connection and waits for all goroutines of
// p.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.cutLocked()
	p.mu.Unlock()
	p.cancel()
	err := p.ln.Close()
	p.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		client := c.(*net.TCPConn)
		l := &proxyConn{client: client}
		p.mu.Lock()
		refused := p.refused
		p.mu.Unlock()
		refuse := refused != nil && refused(client.RemoteAddr())
		p.mu.Lock()
		if p.closed || p.refusing || refuse {
			p.mu.Unlock()
			reset(client)
			continue
		}
		p.conns[l] = struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(l) })
	}
}

// forward dials the target for l and copies until both directions end.
func (p *Proxy) forward(l *proxyConn) {
	defer p.drop(l)
	var d net.Dialer
	c, err := d.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	if !p.connected(l, server) { // cut during the dial
		reset(server)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.copy(server, l.client, ToServer) })
	wg.Go(func() { p.copy(l.client, server, ToClient) })
	wg.Wait()
}

// connected completes l, or returns false if l was cut.
func (p *Proxy) connected(l *proxyConn, server *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.conns[l]; !ok {
		return false
	}
	l.server = server
	p.count++
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// drop removes l and closes its connections.
func (p *Proxy) drop(l *proxyConn) {
	p.mu.Lock()
	delete(p.conns, l)
	p.mu.Unlock()
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}

// copy copies bytes in one direction. It passes the end of the stream on; an
// error resets both sides.
func (p *Proxy) copy(dst, src *net.TCPConn, dir Direction) {
	buf := make([]byte, 32<<10)
	for {
		p.flowing(p.ctx, dir)
		n, err := src.Read(buf)
		p.late(p.ctx, dir)
		allowed, sprung := p.pass(dir, n)
		if _, werr := dst.Write(buf[:allowed]); werr != nil && err == nil {
			err = werr
		}
		switch {
		case sprung != nil:
			p.Cut()
			close(sprung.done)
			return
		case err == io.EOF:
			dst.CloseWrite()
			return
		case err != nil:
			reset(src)
			reset(dst)
			return
		}
	}
}

// pass counts n bytes and returns how many of them to forward. The caller that
// gets a trip must cut and report after writing them.
func (p *Proxy) pass(dir Direction, n int) (allowed int, sprung *trip) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.trip
	if t == nil || t.dir != dir {
		return n, nil
	}
	if int64(n) < t.left {
		t.left -= int64(n)
		return n, nil
	}
	p.trip = nil
	return int(t.left), t
}

func (p *Proxy) cutLocked() int {
	n := len(p.conns)
	for l := range p.conns {
		reset(l.client)
		if l.server != nil {
			reset(l.server)
		}
		delete(p.conns, l)
	}
	return n
}

// reset closes c with a reset instead of an end of the stream.
func reset(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
