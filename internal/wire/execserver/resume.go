package execserver

import (
	"errors"
	"time"

	"github.com/spool-run/spool"
)

// holdFor is how long the events of a resumed process wait for the client's
// read.
const holdFor = 2 * time.Second

// resumption holds back the events of a process until its client, which
// reconnected, has read what it missed. A client that got later events first
// would have to buffer them, and clients buffer little.
type resumption struct {
	after spool.Seq      // the last event at the time of the resume
	read  chan spool.Seq // receives the last seq of the client's read
}

// goOn releases the events after a cursor.
func (r *resumption) goOn(after spool.Seq) { r.read <- after }

// claim returns the resumption of a process to its first caller, and nil to
// later ones.
func (c *conn) claim(p *process) *resumption {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.held[p]
	delete(c.held, p)
	return r
}

// pushResumed pushes the events of a process of a resumed session: those after
// the answer to the read with which the client catches up, or, without that
// read, those from now on. It takes the cursor before it returns, and so before
// the client can read: every event is in a read or pushed, or both.
func (c *conn) pushResumed(p *process) {
	select {
	case <-p.started:
	default: // the client has seen none of its events
		c.following(func() {
			select {
			case <-p.started:
				if p.run != "" {
					c.push(p, 0, 0)
				}
			case <-c.ctx.Done():
			}
		})
		return
	}
	if p.run == "" {
		return
	}
	info, err := c.backend.Stat(c.ctx, p.run)
	if err != nil {
		if !errors.Is(err, spool.ErrNotFound) {
			c.end(nil) // see push
		}
		return
	}
	r := &resumption{after: info.Last, read: make(chan spool.Seq, 1)}
	c.mu.Lock()
	c.held[p] = r
	c.mu.Unlock()
	timer := time.AfterFunc(c.server.waits.hold, func() {
		if c.claim(p) == r {
			r.goOn(r.after)
		} // otherwise a read was or is being answered
	})
	c.following(func() {
		defer timer.Stop()
		select {
		case after := <-r.read:
			c.push(p, after, r.after)
		case <-c.ctx.Done():
		}
	})
}
