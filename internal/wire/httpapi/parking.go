package httpapi

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/gopool"
)

// parking is where streams wait that have sent all there is. Those of the same form are
// a group, for which one goroutine reads the log and encodes each event once.
type parking struct {
	server *Server
	count  func(int)   // counts the streams that are parked; nil if nobody does
	pool   gopool.Pool // runs the groups that have something to do

	mu     sync.Mutex
	groups map[streamForm]*group
}

// group is streams that get the same bytes. One goroutine at a time, which runs work, is
// the one that writes to those of them that wait. While there is nothing to do it has
// none, if the backend tells when there is; see [access.Notifier].
//
// Nobody misses an event and nobody gets one twice: a stream joins only if it has all
// that the group took from the log, and the group takes a page and lets those in who
// are where the page begins in one step.
type group struct {
	parking *parking
	form    *streamForm
	ctx     context.Context // ends with the server, or when nobody waits
	cancel  context.CancelCauseFunc

	// The mu of parking guards these.
	at      spool.Seq // the last event that was taken from the log
	joining []*parked // not before at
	live    int       // streams that wait

	state atomic.Int32 // a groupState
	news  atomic.Bool  // there are events that it has not read
	timed atomic.Bool  // the timer has fired

	unbind func() bool // has it not be woken by the end of ctx

	// Of the goroutine.
	stream  *eventStream
	waiting []*parked // also some that no longer do
	now     sending
	chunk   []byte
	unwatch func()      // ends the wait for events; nil if it does not wait
	timer   *time.Timer // of the next heartbeat; nil before the first wait
}

// groupState says whether a goroutine works for a group.
type groupState = int32

const (
	groupRests groupState = iota
	groupWorks
	groupWorksOn // and looks again before it rests
)

// join adds a stream to its group, unless the group is ahead of it. The caller holds
// the stream's mu.
func (k *parking) join(p *parked) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[*p.form]
	if g == nil {
		g = k.newGroup(p)
		k.groups[*g.form] = g
	}
	if p.after < g.at {
		return false
	}
	p.group, p.form = g, g.form
	g.live++
	g.joining = append(g.joining, p)
	return true
}

// leave says that a stream of the group does not wait any more.
func (k *parking) leave(g *group) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if g.live--; g.live == 0 {
		k.remove(g)
	}
}

// remove ends a group. The caller holds mu.
func (k *parking) remove(g *group) {
	if k.groups[*g.form] == g {
		delete(k.groups, *g.form)
	}
	if len(k.groups) == 0 {
		k.pool.Release()
	}
	g.cancel(nil)
}

// newGroup returns a group for a stream, which goes on by itself from now on.
func (k *parking) newGroup(p *parked) *group {
	g := &group{parking: k, form: p.form, at: p.after}
	g.ctx, g.cancel = context.WithCancelCause(k.server.ctx)
	g.now.init()
	g.stream = g.form.stream(g.ctx, k.server)
	g.stream.to, g.stream.took = g, g.take
	g.stream.from(g.at)
	g.state.Store(groupWorks) // nobody else works for it before it is whole
	g.unbind = context.AfterFunc(g.ctx, g.wake)
	k.server.wg.Add(1)
	k.pool.Go(g.work)
	return g
}

// wake has a goroutine work for the group.
func (g *group) wake() {
	for {
		switch state := g.state.Load(); {
		case state == groupWorksOn:
			return
		case state == groupWorks && g.state.CompareAndSwap(groupWorks, groupWorksOn):
			return
		case state == groupRests && g.state.CompareAndSwap(groupRests, groupWorks):
			g.parking.pool.Go(g.work)
			return
		}
	}
}

// work does what there is to do for the group.
func (g *group) work() {
	for {
		over := false
		ok := g.parking.server.survives(func() { over = g.turn() })
		if over || !ok {
			g.end(ok) // its state stays, so that nobody works for it any more
			return
		}
		if g.state.CompareAndSwap(groupWorks, groupRests) {
			return
		}
		g.state.Store(groupWorks)
	}
}

// turn writes the events that there are, and a heartbeat if it is time for one, and has
// the group woken when there is more to do. It reports whether the group is over.
func (g *group) turn() (over bool) {
	s := g.stream
	for g.ctx.Err() == nil {
		if g.news.Swap(false) {
			g.unwatch = nil
			if !s.read(0) {
				return true
			}
			_, over = s.write()
			s.page = spool.Page{} // many wait
			if over {
				return true
			}
		}
		if g.unwatch != nil {
			return !g.beat()
		}
		switch err := g.watch(); {
		case errors.Is(err, spool.ErrUnsupported):
			s.goOn() // this goroutine waits
			return true
		case err != nil:
			s.giveUp(err)
			return true
		}
	}
	s.giveUp(context.Cause(g.ctx))
	return true
}

// watch has the group woken when there are events after those that it has.
func (g *group) watch() error {
	n, ok := g.form.backend.(access.Notifier)
	if !ok {
		return spool.ErrUnsupported
	}
	stop, err := n.OnEvent(g.ctx, g.form.run, g.stream.after, func() {
		g.news.Store(true)
		g.wake()
	})
	if err == nil && stop == nil { // there are some
		g.news.Store(true)
	}
	g.unwatch = stop
	return err
}

// beat writes a heartbeat if it is time for one, and has the group woken for the next. It
// reports whether the group goes on. The timer is not set for each event: it is set again
// when it has fired too early.
func (g *group) beat() bool {
	s := g.stream
	if s.heartbeat <= 0 || g.timer != nil && !g.timed.Swap(false) {
		return true
	}
	left := s.heartbeat - time.Since(s.spoke)
	if left <= 0 {
		left = s.heartbeat
		s.took(s.after) // those who join are to hear it, too
		s.comment()
		if _, over := s.write(); over {
			return false
		}
	}
	if g.timer == nil {
		g.timer = time.AfterFunc(left, func() {
			g.timed.Store(true)
			g.wake()
		})
	} else {
		g.timer.Reset(left)
	}
	return true
}

// end ends the streams of the group. Those that were not told why are if it ended well.
func (g *group) end(ok bool) {
	k := g.parking
	defer k.server.wg.Done()
	g.unbind()
	if g.timer != nil {
		g.timer.Stop()
	}
	if g.unwatch != nil {
		g.unwatch()
	}
	k.mu.Lock()
	k.remove(g)
	joining := g.joining
	g.joining = nil
	k.mu.Unlock()
	for _, p := range g.waiting { // the group ended without an end frame for these
		if ok {
			p.send(&g.now, []byte(lastChunk), true)
		} else {
			p.cut()
		}
	}
	for _, p := range joining { // each reads the end of the log itself
		p.part()
	}
}

// take notes that the group has read the log up to a cursor. Streams that join, and have
// all events before this page, wait in the group from now on; those that have a part of
// the page go on alone.
func (g *group) take(next spool.Seq) {
	k := g.parking
	k.mu.Lock()
	var between, ahead []*parked
	for _, p := range g.joining {
		switch {
		case p.after == g.at:
			g.waiting = append(g.waiting, p)
		case p.after >= next:
			ahead = append(ahead, p)
		default: // it has a part of the page
			between = append(between, p)
		}
	}
	g.joining, g.at = ahead, max(g.at, next)
	k.mu.Unlock()
	for _, p := range between {
		p.part()
	}
}

// Write sends to all streams that wait. It implements [io.Writer].
func (g *group) Write(b []byte) (int, error) {
	g.chunk = appendChunk(g.chunk[:0], b)
	if g.stream.over {
		g.chunk = append(g.chunk, lastChunk...)
	}
	g.now.after = g.stream.after
	kept := g.waiting[:0]
	for _, p := range g.waiting {
		if p.send(&g.now, g.chunk, g.stream.over) {
			kept = append(kept, p)
		}
	}
	clear(g.waiting[len(kept):])
	g.waiting = kept
	if cap(g.chunk) > idleBytes {
		g.chunk = nil
	}
	return len(b), nil
}

// FlushError has nothing to do: nothing is held back.
func (g *group) FlushError() error { return nil }

// wasSlow is false: a slow client is not in the group.
func (g *group) wasSlow() bool { return false }

// sending sends bytes to one connection after the other, without waiting.
type sending struct {
	after spool.Seq // the cursor of a client that has them

	b     []byte
	n     int
	err   error
	write func(fd uintptr) bool
}

func (s *sending) init() {
	s.write = func(fd uintptr) bool {
		for {
			s.n, s.err = syscall.Write(int(fd), s.b)
			if s.err != syscall.EINTR {
				return true
			}
		}
	}
}

// send sends what the connection takes.
func (s *sending) send(c syscall.RawConn, b []byte) (int, error) {
	s.b, s.n, s.err = b, 0, nil
	err := c.Write(s.write)
	s.b = nil
	if err == nil && s.err != syscall.EAGAIN {
		err = s.err
	}
	return max(0, s.n), err
}

// chunkBytes is more than a chunk has around its data.
const chunkBytes = 24

// appendChunk appends data as a chunk of HTTP/1.1.
func appendChunk(dst, data []byte) []byte {
	dst = append(strconv.AppendUint(dst, uint64(len(data)), 16), "\r\n"...)
	return append(append(dst, data...), "\r\n"...)
}
