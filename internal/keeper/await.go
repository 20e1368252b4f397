package keeper

import (
	"context"
	"fmt"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// maxAwaits is how many requests for updates of one connection wait at once. A server
// has one for each run that it follows.
const maxAwaits = 1 << 16

// awaits are the requests for updates of one connection that wait for an event. There
// may be thousands, and none has a goroutine.
type awaits struct {
	mu   sync.Mutex
	stop map[*rpc.Request]func() // ends the wait; nil while it begins
}

// add adds a request. The error is [spool.ErrBusy] if there are too many.
func (a *awaits) add(r *rpc.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.stop) >= maxAwaits {
		return fmt.Errorf("%w: %d requests for updates wait", spool.ErrBusy, maxAwaits)
	}
	if a.stop == nil {
		a.stop = make(map[*rpc.Request]func())
	}
	a.stop[r] = nil
	return nil
}

// waits says how to end the wait of a request, which may be over.
func (a *awaits) waits(r *rpc.Request, stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.stop[r]; waits {
		a.stop[r] = stop
	}
}

// remove removes a request that waits no more.
func (a *awaits) remove(r *rpc.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stop, r)
}

// end ends all waits. No request begins to wait any more.
func (a *awaits) end() {
	a.mu.Lock()
	left := a.stop
	a.stop = nil
	a.mu.Unlock()
	for _, stop := range left {
		stop()
	}
}

// await answers a request for an update, now or once there is an event.
func (c *serverConn) await(r *rpc.Request) {
	p, err := decode[awaitParams](r)
	if err == nil {
		err = c.awaits.add(r)
	}
	if err != nil {
		r.Reply(nil, runproto.EncodeError(err))
		return
	}
	answer := func() {
		update, err := c.update(p)
		r.Reply(&update, runproto.EncodeError(err))
	}
	stop, err := c.server.host.OnEvent(p.Run, p.After, func() {
		c.awaits.remove(r)
		c.server.updates.Go(answer)
	})
	if stop != nil {
		c.awaits.waits(r, stop)
		return
	}
	c.awaits.remove(r)
	if err != nil {
		r.Reply(nil, runproto.EncodeError(err))
		return
	}
	answer()
}

// update waits for an update of a run.
func (c *serverConn) update(p awaitParams) (record.Update, error) {
	page, at, err := c.server.host.Await(c.ctx, p.Run, p.After, inlineBytes)
	if n := len(page.Events); err == nil && n > 0 && page.Events[n-1].Kind == spool.KindExited {
		// Most runs are closed right after their exit: send both.
		ctx, cancel := context.WithTimeout(c.ctx, closedDelay)
		if more, _, moreErr := c.server.host.Await(ctx, p.Run, page.Next, inlineBytes); moreErr == nil && len(more.Events) > 0 {
			page, at, err = c.server.host.Await(c.ctx, p.Run, p.After, inlineBytes)
		}
		cancel()
	}
	if err != nil {
		return record.Update{}, err
	}
	return newUpdate(page, at), nil
}

// newUpdate returns the update for a page that ends at a position in the files.
func newUpdate(page spool.Page, at store.Position) record.Update {
	result := record.Update{Info: page.Info, Last: at.Last, Segment: at.Segment, Size: at.Size}
	// Send all new events or none: the server can read them from the files.
	if page.Next == page.Info.Last && len(page.Events) <= inlineEvents {
		size := 0
		for i := range page.Events {
			size += page.Events[i].Size()
		}
		if size <= inlineBytes {
			result.Events = page.Events
		}
	}
	return result
}
