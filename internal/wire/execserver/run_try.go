package execserver

import (
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// maxTried is how many starts of a connection wait without a goroutine.
const maxTried = 256

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

// tried is a start that waits for the backend, and has no goroutine: one that is woken for
// the request, and one for the answer, take a processor from the process that begins.
type tried struct {
	request *rpc.Request
	follow  *follow              // what follows the answer; nil if nothing does
	conn    atomic.Pointer[conn] // nil once it has ended: the run may go on for long
}

// try handles a start on the goroutine that reads. It reports false, and the request is to
// be handled like others, if that would have to wait or anything is wrong with it.
func (c *conn) try(r *rpc.Request) bool {
	if r.Method != "run/execute" && r.Method != "run/start_follow" {
		return false
	}
	b, ok := c.backend.(starter)
	if !ok || c.checkReady("run") != nil || !c.account.Try(0) || !c.requests.Try(requestBytes) {
		return false
	}
	t := &tried{request: r}
	if ok = c.addTried(t); ok {
		if ok = c.tryStart(b, t); !ok {
			c.takeTried(t)
		}
	}
	if !ok {
		c.requests.Add(-requestBytes)
	}
	return ok
}

func (c *conn) tryStart(b starter, t *tried) bool {
	if t.request.Method == "run/execute" {
		spec, err := c.spec(t.request.Params)
		return err == nil && b.TryExecute(spec, func(info spool.Info, err error) { t.done(&info, err, nil) })
	}
	var p runproto.StartFollowParams
	if decode(t.request.Params, &p, "spec", "follow") != nil {
		return false
	}
	spec, err := c.spec(p.Spec)
	if err != nil {
		return false
	}
	f := newFollow(runproto.FollowParams{Follow: p.Follow, Window: p.Window})
	if leaving, err := c.addFollow(f); leaving != nil || err != nil {
		return false
	}
	f.begin(p.Ahead)
	f.closedEnds = p.ClosedEnds
	t.follow = f
	if b.TryStart(spec, func(info spool.Info, err error, attach func()) bool { return t.done(&info, err, attach) }) {
		return true
	}
	c.closeFollow(f)
	return false
}

// addTried reports false if too many wait.
func (c *conn) addTried(t *tried) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.tried) >= maxTried {
		return false
	}
	t.conn.Store(c)
	c.tried[t] = struct{}{}
	return true
}

// takeTried removes a start and reports whether it still waited.
func (c *conn) takeTried(t *tried) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, waits := c.tried[t]
	delete(c.tried, t)
	return waits
}

// done answers the request, and reports whether the run has a reader then. It does not
// wait.
func (t *tried) done(info *spool.Info, err error, attach func()) (reads bool) {
	if c := t.conn.Load(); c != nil {
		c.contain(func() { reads = c.answer(t, info, err, attach) })
	}
	return reads
}

func (c *conn) answer(t *tried, info *spool.Info, err error, attach func()) (reads bool) {
	c.mu.Lock()
	defer c.mu.Unlock() // the connection does not end meanwhile
	if _, waits := c.tried[t]; !waits {
		return false
	}
	delete(c.tried, t)
	answered := err == nil && t.request.TryReply(info, c.followers.Go)
	if answered {
		c.release(t)
		if t.follow == nil {
			return false
		}
	}
	reads = err == nil && t.follow != nil
	c.following(func() {
		if !answered {
			if err == nil || !c.isEnding() { // see Request
				c.reply(t.request, info, runproto.EncodeError(err))
			}
			c.release(t)
		}
		switch f := t.follow; {
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

// release gives back what a start held that was answered, or will not be.
func (c *conn) release(t *tried) {
	t.request.Release()
	c.requests.Add(-requestBytes)
}

// endTried ends the waits of a connection that has ended. The runs go on.
func (c *conn) endTried() {
	c.mu.Lock()
	left := c.tried
	c.tried = nil
	c.mu.Unlock()
	for t := range left {
		t.conn.Store(nil)
		if t.follow != nil {
			c.closeFollow(t.follow)
		}
		c.release(t)
	}
}
