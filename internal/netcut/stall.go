package netcut

import "context"

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
