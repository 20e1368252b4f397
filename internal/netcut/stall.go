package netcut

import "context"

// Stall stops reading what goes in direction dir, over all connections, until
// [Proxy.Flow]: whoever sends fills the buffers of the kernel and waits. What
// was read before goes on.
func (p *Proxy) Stall(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled[dir] == nil {
		p.stalled[dir] = make(chan struct{})
	}
}

// Flow ends what Stall began.
func (p *Proxy) Flow(dir Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stalled[dir] != nil {
		close(p.stalled[dir])
		p.stalled[dir] = nil
	}
}

// flowing waits out a stall.
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
