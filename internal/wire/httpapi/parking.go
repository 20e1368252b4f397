package httpapi

import (
	"context"
	"strconv"
	"sync"
	"syscall"

	"github.com/spool-run/spool"
)

// parking is where streams wait that have sent all there is. Those of the same form are
// a group, for which one goroutine reads the log and encodes each event once.
type parking struct {
	server *Server
	count  func(int) // counts the streams that are parked; nil if nobody does

	mu     sync.Mutex
	groups map[streamForm]*group
}

// group is streams that get the same bytes. Its goroutine, run, is the one that writes
// to those of them that wait.
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

	// Of the goroutine.
	stream  *eventStream
	waiting []*parked // also some that no longer do
	now     sending
	chunk   []byte
}

// join adds a stream to its group, unless the group is ahead of it. The caller holds
// the stream's mu.
func (k *parking) join(p *parked) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.groups[*p.form]
	if g == nil {
		g = &group{parking: k, form: p.form, at: p.after}
		g.ctx, g.cancel = context.WithCancelCause(k.server.ctx)
		k.groups[*g.form] = g
		k.server.wg.Go(g.run)
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
	g.cancel(nil)
}

// run serves the group until nobody waits or the log ends.
func (g *group) run() {
	k := g.parking
	g.now.init()
	g.stream = g.form.stream(g.ctx, k.server)
	g.stream.to, g.stream.took = g, g.take
	k.mu.Lock()
	at := g.at
	k.mu.Unlock()
	ok := k.server.survives(func() {
		g.stream.from(at)
		g.stream.goOn()
	})
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
