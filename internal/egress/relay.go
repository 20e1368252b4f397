package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// forward carries a connection to another proxy.
func (p *Proxy) forward(c *inbound) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", p.o.Forward)
	if err != nil {
		return
	}
	server := nc.(*net.TCPConn)
	if !p.own(server) {
		return
	}
	defer p.disown(server)
	at := server.RemoteAddr().(*net.TCPAddr).AddrPort()
	p.relay(c, nil, server, Target{Host: at.Addr().String(), Port: at.Port()})
}

// relay carries bytes between a run and a host until both have ended. The kernel moves
// them without a copy into this process where it can.
func (p *Proxy) relay(client *inbound, early []byte, server *net.TCPConn, t Target) {
	c := p.tally.of(t.Host, t.Port)
	c.connections.Add(1)
	if len(early) > 0 {
		n, err := server.Write(early)
		c.up.Add(int64(n))
		if err != nil {
			return
		}
	}
	var moved atomic.Int64 // in both directions
	var both sync.WaitGroup
	both.Go(func() { p.carry(client.TCPConn, server, &c.down, &moved) })
	p.carry(server, client.TCPConn, &c.up, &moved)
	both.Wait()
}

// carry carries the bytes of one direction. At the end it ends that direction, and
// after a failure or a long silence both.
func (p *Proxy) carry(dst, src *net.TCPConn, count, moved *atomic.Int64) {
	seen := int64(-1)
	for {
		err := src.SetReadDeadline(time.Now().Add(p.o.Idle))
		if err == nil {
			var n int64
			n, err = io.Copy(dst, src)
			count.Add(n)
			moved.Add(n)
		}
		switch {
		case err == nil:
			_ = dst.CloseWrite() // it may be closed already
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The other direction counts its bytes at its own deadline, so a
			// silence is one that two deadlines saw.
			if now := moved.Load(); now != seen {
				seen = now
				continue
			}
		}
		_ = src.Close()
		_ = dst.Close()
		return
	}
}
