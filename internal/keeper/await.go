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
	last uint64            // the number that was given last
	stop map[uint64]func() // ends the wait of a number; nil while it begins
}

// add adds a request and gives it a number. The error is [spool.ErrBusy] if there are too
// many.
func (a *awaits) add() (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.stop) >= maxAwaits {
		return 0, fmt.Errorf("%w: %d requests for updates wait", spool.ErrBusy, maxAwaits)
	}
	if a.stop == nil {
		a.stop = make(map[uint64]func())
	}
	a.last++
	a.stop[a.last] = nil
	return a.last, nil
}

// waits says how to end the wait of a request, which may be over.
func (a *awaits) waits(n uint64, stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.stop[n]; waits {
		a.stop[n] = stop
	}
}

// remove removes a request that waits no more.
func (a *awaits) remove(n uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.stop, n)
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
	if err != nil {
		r.Reply(nil, runproto.EncodeError(err))
		return
	}
	answer := func() {
		update, err := c.update(p)
		r.Reply(&update, runproto.EncodeError(err))
	}
	if ready, err := c.onEvent(p, func() { c.server.updates.Go(answer) }); err != nil {
		r.Reply(nil, runproto.EncodeError(err))
	} else if ready {
		answer()
	}
}

// onEvent has f called when there is an event for a request, by the goroutine that
// appends it. It reports true, and f is not called, if there is one already.
func (c *serverConn) onEvent(p awaitParams, f func()) (ready bool, err error) {
	n, err := c.awaits.add()
	if err != nil {
		return false, err
	}
	stop, err := c.server.host.OnEvent(c.ctx, p.Run, p.After, func() {
		c.awaits.remove(n)
		f()
	})
	if stop != nil {
		c.awaits.waits(n, stop)
		return false, nil
	}
	c.awaits.remove(n)
	return err == nil, err
}

// awaitNews is await for a binary message. It is called by the goroutine that reads, and
// mostly needs no other: the update is made by the one that appends the event.
func (c *serverConn) awaitNews(b []byte) error {
	id, b, err := cutID(b)
	if err != nil {
		return err
	}
	after, b, err := cutID(b)
	if err != nil {
		return err
	}
	w := &newsWait{c, id, awaitParams{spool.RunID(b), spool.Seq(after)}}
	if c.server.host.Knows(w.params.Run) {
		w.begin()
	} else {
		c.lanes.Go("", len(b), w.begin)
	}
	return nil
}

// newsWait is a binary request for an update.
type newsWait struct {
	conn   *serverConn
	id     uint64
	params awaitParams
}

// begin answers the request if it can be answered, and else has it wait.
func (w *newsWait) begin() {
	if ready, err := w.conn.onEvent(w.params, w.answer); err != nil {
		w.conn.server.updates.Go(func() { w.refuse(err) })
	} else if ready {
		w.answer()
	}
}

// answer answers the request without waiting, or has another goroutine do it.
func (w *newsWait) answer() {
	page, at, err := w.conn.server.host.Await(w.conn.ctx, w.params.Run, w.params.After, inlineBytes)
	if n := len(page.Events); err == nil && (n == 0 || page.Events[n-1].Kind != spool.KindExited) {
		n := newsRooms.Get().(*newsRoom)
		n.update = newUpdate(page, at)
		n.b = w.encode(n.b[:0], &n.update)
		sent := w.conn.transport.sendSoon(n.b) // which copies it
		if n.update = (record.Update{}); cap(n.b) <= keptOut {
			newsRooms.Put(n)
		}
		if sent {
			return
		}
	}
	w.conn.server.updates.Go(w.answerSlowly)
}

// answerSlowly answers the request, and waits for the server if it has to.
func (w *newsWait) answerSlowly() {
	update, err := w.conn.update(w.params)
	if err != nil {
		w.refuse(err)
		return
	}
	_ = w.conn.transport.send(w.encode(nil, &update)) // nothing to do if the connection is lost
}

// newsRoom is room for an update that is being sent, which would be much on a stack.
type newsRoom struct {
	update record.Update
	b      []byte
}

var newsRooms = sync.Pool{New: func() any { return &newsRoom{b: make([]byte, 0, messageRoom)} }}

// encode appends the answer.
func (w *newsWait) encode(dst []byte, update *record.Update) []byte {
	head := appendHeader(dst, messageNews, w.id)
	b, err := record.AppendWhole(head, update)
	if err != nil { // the files have the events as well
		update.Events = nil
		b, _ = record.AppendWhole(head, update) // only events can fail
	}
	return b
}

func (w *newsWait) refuse(err error) {
	w.conn.transport.refused(messageNoNews, w.id, runproto.EncodeError(err))
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
