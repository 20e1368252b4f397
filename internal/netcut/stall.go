package netcut

import (
	"context"
	"time"
)

// Stall stops reading bytes in direction dir, over all connections, until
// [Proxy.Flow]: a sender fills the buffers of the kernel and blocks. Bytes that
// were read before are forwarded.
func (p *Proxy) Stall(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled[dir] == nil {
		p.stalled[dir] = make(chan struct{})
	}
}

// Flow undoes Stall.
func (p *Proxy) Flow(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled[dir] != nil {
		close(p.stalled[dir])
		p.stalled[dir] = nil
	}
}

// flowing waits for the end of a stall.
func (p *Proxy) flowing(ctx context.Context, dir Direction) {
	p.mu.Lock()
	stalled := p.stalled[dir]
	p.mu.Unlock()
	if stalled == nil {
		return
	}
	select {
	case <-stalled:
	case <-ctx.Done():
	}
}

// Delay has bytes in direction dir arrive later, over all connections: those that are
// read at once wait for so long, and those behind them, too. Zero ends that.
func (p *Proxy) Delay(dir Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[dir] = d
}

// late waits for the delay of a direction.
func (p *Proxy) late(ctx context.Context, dir Direction) {
	p.mu.Lock()
	d := p.delays[dir]
	p.mu.Unlock()
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
