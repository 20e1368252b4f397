package execserver

import (
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// maxPendingStarts is how many starts of a connection wait without a goroutine.
const maxPendingStarts = 256

// starter is a backend that starts runs without a goroutine for each wait.
type starter interface {
	// TryStart is Start that has done called with the result. It reports false, and done
	// is not called, if that is not possible without waiting. The function done must not
	// block, and may be called before TryStart returns. If the run is to have a reader, it
	// reports true, and another goroutine calls attach, which may wait, and then reads.
	TryStart(spec spool.Spec, done func(info spool.Info, err error, attach func()) bool) bool
	// TryExecute is Execute, likewise.
	TryExecute(spec spool.Spec, done func(spool.Info, error)) bool
}

// pendingStart is a start that waits for the backend, and has no goroutine: one that is
// woken for the request, and one for the answer, take a processor from the process that
// begins.
type pendingStart struct {
	request *rpc.Request
	follow  *follow              // what follows the answer; nil if nothing does
	conn    atomic.Pointer[conn] // nil once it has ended: the run may go on for long
}

// tryStart handles a start on the goroutine that reads. It reports false, and the request is to
// be handled like others, if that would have to wait or anything is wrong with it.
func (c *conn) tryStart(r *rpc.Request) bool {
	if r.Method != "run/execute" && r.Method != "run/start_follow" {
		return false
	}
	b, ok := c.backend.(starter)
	if !ok || c.checkReady("run") != nil || !c.account.Try(0) || !c.requests.Try(requestBytes) {
		return false
	}
	p := &pendingStart{request: r}
	if ok = c.addPending(p); ok {
		if ok = c.askFor(p, b); !ok {
			c.removePending(p)
		}
	}
	if !ok {
		c.requests.Add(-requestBytes)
	}
	return ok
}

// askFor has the backend start what a request asks for.
func (c *conn) askFor(s *pendingStart, b starter) bool {
	if s.request.Method == "run/execute" {
		spec, err := c.spec(s.request.Params)
		return err == nil && b.TryExecute(spec, func(info spool.Info, err error) { s.done(&info, err, nil) })
	}
	var p runproto.StartFollowParams
	if decode(s.request.Params, &p, "spec", "follow") != nil {
		return false
	}
	spec, err := c.spec(p.Spec)
	if err != nil {
		return false
	}
	f := newFollowAhead(&p)
	if leaving, err := c.addFollow(f); leaving != nil || err != nil {
		return false
	}
	s.follow = f
	if b.TryStart(spec, func(info spool.Info, err error, attach func()) bool { return s.done(&info, err, attach) }) {
		return true
	}
	c.closeFollow(f)
	return false
}

// addPending reports false if too many wait.
func (c *conn) addPending(p *pendingStart) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) >= maxPendingStarts {
		return false
	}
	p.conn.Store(c)
	c.pending[p] = struct{}{}
	return true
}

func (c *conn) removePending(p *pendingStart) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, p)
}

// done answers the request, and reports whether the run has a reader then. It does not
// wait.
func (p *pendingStart) done(info *spool.Info, err error, attach func()) (reads bool) {
	if c := p.conn.Load(); c != nil {
		c.contain(func() { reads = c.answer(p, info, err, attach) })
	}
	return reads
}

func (c *conn) answer(p *pendingStart, info *spool.Info, err error, attach func()) (reads bool) {
	c.mu.Lock()
	defer c.mu.Unlock() // the connection does not end meanwhile
	if _, waits := c.pending[p]; !waits {
		return false
	}
	answered := err == nil && p.request.TryReply(info, c.followers.Go)
	delete(c.pending, p) // if the reply panicked, the end of the connection releases it
	if answered {
		c.release(p)
	}
	if answered && p.follow == nil {
		return false
	}
	reads = err == nil && p.follow != nil
	c.following(func() {
		if !answered {
			c.answerSlowly(p, info, err)
		}
		switch f := p.follow; {
		case reads:
			attach()
			f.params.Run, f.last = info.ID, info.Last
			c.follow(f)
		case f != nil:
			c.closeFollow(f)
		}
	})
	return reads
}

// answerSlowly answers a request, and waits for the client if it has to.
func (c *conn) answerSlowly(p *pendingStart, info *spool.Info, err error) {
	defer c.release(p)
	if err == nil || !c.isEnding() { // see Request
		c.reply(p.request, info, runproto.EncodeError(err))
	}
}

// release gives back what a start held that was answered, or will not be.
func (c *conn) release(p *pendingStart) {
	p.request.Release()
	c.requests.Add(-requestBytes)
}

// endPending ends the waits of a connection that has ended. The runs go on.
func (c *conn) endPending() {
	c.mu.Lock()
	left := c.pending
	c.pending = nil
	c.mu.Unlock()
	for p := range left {
		p.conn.Store(nil)
		if p.follow != nil {
			c.closeFollow(p.follow)
		}
		c.release(p)
	}
}
