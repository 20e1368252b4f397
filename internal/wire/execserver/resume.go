package execserver

import (
	"errors"
	"time"

	"github.com/spool-run/spool"
)

// holdFor is how long the events of a resumed process wait for its client to
// read what it missed.
const holdFor = 2 * time.Second

// resumption is a process whose events wait until its client, which came back,
// was told what it missed: one that got later events before would have to keep
// them, and clients keep little.
type resumption struct {
	after spool.Seq      // the last event when the client came back
	read  chan spool.Seq // up to where it was told then
}

// goOn lets the events after a cursor go out.
func (r *resumption) goOn(after spool.Seq) { r.read <- after }

// claim returns what waits for a read of the process, to the first who asks.
func (c *conn) claim(p *process) *resumption {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.held[p]
	delete(c.held, p)
	return r
}

// pushResumed sends what happens to a process of a session that was resumed:
// what follows the answer to the read with which its client catches up, or,
// without that read, what happens from now on. The cursor is taken before this
// returns, and so before the client can read: an event is found by a read, or
// pushed, or both.
func (c *conn) pushResumed(p *process) {
	select {
	case <-p.started:
	default: // and the client was told nothing of it
		c.followers.Go(func() {
			select {
			case <-p.started:
				if p.run != "" {
					c.push(p, 0)
				}
			case <-c.ctx.Done():
			}
		})
		return
	}
	if p.run == "" {
		return
	}
	info, err := c.server.opts.Backend.Stat(c.ctx, p.run)
	if err != nil {
		if !errors.Is(err, spool.ErrNotFound) {
			c.cancel() // as in push
		}
		return
	}
	r := &resumption{after: info.Last, read: make(chan spool.Seq, 1)}
	c.mu.Lock()
	c.held[p] = r
	c.mu.Unlock()
	timer := time.AfterFunc(holdFor, func() {
		if c.claim(p) == r {
			r.goOn(r.after)
		} // else a read was, or is being answered
	})
	c.followers.Go(func() {
		defer timer.Stop()
		select {
		case after := <-r.read:
			c.push(p, after)
		case <-c.ctx.Done():
		}
	})
}
