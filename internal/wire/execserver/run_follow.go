package execserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// follow is a reader on the other side of the wire. It holds a cursor and how
// much the other side has room for, and no events.
type follow struct {
	params runproto.FollowParams
	last   spool.Seq // of the log when the follow began
	// closedEnds says that the other side takes the closed event for the end.
	closedEnds bool
	ctx        context.Context
	cancel     context.CancelFunc
	ended      chan struct{}     // closed when it sends nothing more
	seen       func(*spool.Info) // of a watch, is told what was sent; nil if nobody wants to know

	mu     sync.Mutex
	credit int64
	more   chan struct{} // has room for one; filled when credit grows
}

func (c *conn) routeFollow() route {
	// The events come after the answer.
	var f *follow
	return route{
		family: "run",
		call: func(ctx context.Context, params json.RawMessage) (any, error) {
			var err error
			f, err = c.followRun(ctx, params)
			return struct{}{}, runproto.EncodeError(err)
		},
		after: func(any) { c.following(func() { c.follow(f) }) },
	}
}

func (c *conn) followRun(ctx context.Context, params json.RawMessage) (*follow, error) {
	var p runproto.FollowParams
	if err := decode(params, &p, "follow", "run"); err != nil {
		return nil, err
	}
	// An unknown run is an answer, not an event.
	info, err := c.backend.Stat(ctx, p.Run)
	if err != nil {
		return nil, err
	}
	f := newFollow(p)
	f.last = info.Last
	return f, c.openFollow(ctx, f)
}

// newFollow returns a follow that has room for its window.
func newFollow(p runproto.FollowParams) *follow {
	if p.Window <= 0 || p.Window > maxWindow {
		p.Window = runproto.DefaultWindow
	}
	return &follow{params: p, credit: p.Window, more: make(chan struct{}, 1), ended: make(chan struct{})}
}

// openFollow adds a follow to the connection, after those whose place it needs have
// ended.
func (c *conn) openFollow(ctx context.Context, f *follow) error {
	for {
		leaving, err := c.addFollow(f)
		if err != nil || leaving == nil {
			return err
		}
		select {
		case <-leaving.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// closeFollow removes a follow that sends nothing more.
func (c *conn) closeFollow(f *follow) {
	f.cancel()
	c.mu.Lock()
	delete(c.follows, f.params.Follow)
	c.mu.Unlock()
	close(f.ended)
}

// addFollow adds a follow to the connection. If its number or its place belongs to
// one that the client has left and that may still be sending, it returns that one.
func (c *conn) addFollow(f *follow) (leaving *follow, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, taken := c.follows[f.params.Follow]; taken {
		if other.ctx.Err() != nil {
			return other, nil
		}
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "follow %d already exists", f.params.Follow)
	}
	if len(c.follows) >= maxFollows {
		for _, other := range c.follows {
			if other.ctx.Err() != nil {
				return other, nil
			}
		}
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "at most %d follows may be open per connection", maxFollows)
	}
	f.ctx, f.cancel = context.WithCancel(c.ctx)
	c.follows[f.params.Follow] = f
	return nil, nil
}

// follow sends events until the run is closed, the other side leaves, or the
// log cannot be read.
func (c *conn) follow(f *follow) {
	ctx := f.ctx
	defer c.closeFollow(f)
	send := c.sendEvents
	if c.binary {
		send = c.relay
	}
	err := send(f)
	if ctx.Err() != nil || err == nil && f.closedEnds || err != nil && c.isEnding() {
		return
	}
	end := runproto.EndParams{Follow: f.params.Follow}
	if err != nil {
		errors.As(runproto.EncodeError(err), &end.Error)
	}
	c.notify("run/end", end)
}

// relay sends the records of a run as binary messages, as they are. While it waits
// for the client it holds none.
func (c *conn) relay(f *follow) error {
	head := binary.LittleEndian.AppendUint32([]byte{runproto.BinaryEvents}, f.params.Follow)
	after, tries := f.params.After, 0
	for batch, err := range record.Follow(f.ctx, c.backend, f.params.Run, after) {
		if err != nil {
			return err
		}
		p := part{batch: batch, turns: c.server.relaying, account: c.server.paused}
		for ; p.from < batch.Size(); p.from = p.to {
			last, begun, err := c.sendPart(f, head, &p, after)
			if errors.Is(err, record.ErrChanged) && !begun && tries < relayTries {
				batch.Again(after) // the client gets what is left
				tries++
				break
			}
			if err != nil {
				return err
			}
			after, tries = last, 0
		}
	}
	return nil
}

// sendPart sends the records of p for which the other side has room, as one message,
// and returns the seq of the last. It reports whether the message was begun.
func (c *conn) sendPart(f *follow, head []byte, p *part, after spool.Seq) (last spool.Seq, begun bool, err error) {
	if last, err = f.fit(p, after); err != nil {
		p.Drop()
		return after, false, err
	}
	f.spend(p.Size())
	if err = c.rpc.SendPayload(head, p); errors.Is(err, rpc.ErrUnsent) {
		f.spend(-p.Size())
		return after, false, err
	}
	return last, true, err
}

// relayTries is how often a relay that sends nothing looks again what is left of a
// log that is being removed.
const relayTries = 100

// fit waits until the other side has room, and makes p end with the last record
// for which there is. It returns the seq of that one.
func (f *follow) fit(p *part, after spool.Seq) (spool.Seq, error) {
	if !f.hasRoom() {
		p.Drop() // it waits
	}
	room, ok := f.room(f.ctx)
	if !ok {
		return after, context.Cause(f.ctx)
	}
	b, err := p.load()
	if err != nil {
		return after, err
	}
	n, err := record.Fit(b[p.from:], room)
	if err != nil {
		return after, err
	}
	p.to = p.from + n
	last, _, err := record.Last(b[p.from:p.to], after)
	return last, err
}

// sendEvents sends the events of a run as notifications.
func (c *conn) sendEvents(f *follow) error {
	for b, err := range c.batches(f.ctx, f.params.Run, f.params.After, f.last) {
		if err != nil {
			return err
		}
		for len(b) > 0 {
			e, n, err := record.Decode(b)
			if err != nil {
				return err
			}
			if _, ok := f.room(f.ctx); !ok {
				return context.Cause(f.ctx)
			}
			e.Run = f.params.Run
			f.spend(n)
			if err := c.rpc.Notify("run/event", runproto.EventParams{Follow: f.params.Follow, Event: e}); err != nil {
				return err
			}
			b = b[n:]
		}
	}
	return nil
}

// spend takes room before it is used: the acknowledgement may come before the
// sender went on, and there is never more room than the window.
func (f *follow) spend(size int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.credit -= int64(size)
}

func (f *follow) hasRoom() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.credit > 0
}

// room waits until the other side has some.
func (f *follow) room(ctx context.Context) (int64, bool) {
	for {
		f.mu.Lock()
		credit := f.credit
		f.mu.Unlock()
		if credit > 0 {
			return credit, ctx.Err() == nil
		}
		select {
		case <-f.more:
		case <-ctx.Done():
			return 0, false
		}
	}
}

// ack gives a follow more room. Callers hold c.mu.
func (c *conn) ack(params json.RawMessage) error {
	p, ok := plainAck(params)
	if !ok {
		if err := decode(params, &p, "follow", "bytes"); err != nil {
			return err
		}
	}
	f, ok := c.follows[p.Follow]
	if !ok || p.Bytes < 0 {
		return nil // it ended meanwhile
	}
	f.mu.Lock()
	f.credit = min(f.credit+p.Bytes, f.params.Window)
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
	return nil
}

// plainAck reads acknowledgements as our clients write them, of which a crowd sends
// thousands a second. They leave no garbage. It reports false for any other form.
func plainAck(params []byte) (p runproto.AckParams, ok bool) {
	rest, first := bytes.CutPrefix(params, []byte(`{"follow":`))
	follow, rest, second := bytes.Cut(rest, []byte(`,"bytes":`))
	n, last := bytes.CutSuffix(rest, []byte("}"))
	if !first || !second || !last {
		return p, false
	}
	id, err1 := strconv.ParseUint(string(follow), 10, 32)
	size, err2 := strconv.ParseUint(string(n), 10, 63)
	if err1 != nil || err2 != nil || follow[0] == '0' && len(follow) > 1 || n[0] == '0' && len(n) > 1 {
		return p, false
	}
	return runproto.AckParams{Follow: uint32(id), Bytes: int64(size)}, true
}

// unfollow ends a follow. Callers hold c.mu.
func (c *conn) unfollow(params json.RawMessage) error {
	var p runproto.UnfollowParams
	if err := decode(params, &p, "follow"); err != nil {
		return err
	}
	if f, ok := c.follows[p.Follow]; ok {
		f.cancel()
	}
	return nil
}
