package execserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Defaults of [Limits].
const (
	// DefaultConnections is the number of connections at once.
	DefaultConnections = 2048
	// DefaultRequests is the number of requests under way per connection.
	DefaultRequests = 4096
	// DefaultUnread is how many bytes the server holds for one connection:
	// requests under way and answers that the client has not read.
	DefaultUnread = 16 << 20
	// DefaultUnreadTotal is how many bytes the server holds for all
	// connections, beyond ownRequests and ownAnswers of each.
	DefaultUnreadTotal = 32 << 20
	// DefaultReceived is how many bytes of messages the server holds for all
	// connections: those it receives, and requests until they are answered.
	DefaultReceived = 128 << 20
	// DefaultHandshake is the time from a connection to the end of its
	// handshake.
	DefaultHandshake = 10 * time.Second
	// DefaultStalled is how long a write may wait for a client that does not
	// read.
	DefaultStalled = time.Minute
)

// Limits bound what clients can make a server hold. Zero means the default.
type Limits struct {
	Connections int           // at once; more are refused with status 503
	Requests    int           // under way per connection; more are not read yet
	Unread      int64         // bytes held for one connection; above it, its requests are not read
	UnreadTotal int64         // bytes held for all connections, beyond what is their own
	Received    int64         // bytes of messages of all connections that are received or not yet answered; more are not read yet
	Handshake   time.Duration // until the client has sent initialized; then the connection is closed
	Stalled     time.Duration // of a write without progress; then the connection is closed
}

func (l Limits) withDefaults() Limits {
	l.Connections = cmp.Or(l.Connections, DefaultConnections)
	l.Requests = cmp.Or(l.Requests, DefaultRequests)
	l.Unread = cmp.Or(l.Unread, DefaultUnread)
	l.UnreadTotal = cmp.Or(l.UnreadTotal, DefaultUnreadTotal)
	l.Received = cmp.Or(l.Received, DefaultReceived)
	l.Handshake = cmp.Or(l.Handshake, DefaultHandshake)
	l.Stalled = cmp.Or(l.Stalled, DefaultStalled)
	return l
}

const (
	// ownRequests and ownAnswers are how much every connection may hold
	// whatever others hold, so that clients which do not read cannot stop one
	// that does.
	ownRequests = 32 << 10
	ownAnswers  = 96 << 10
	// requestBytes is about what a request under way takes: a goroutine, the
	// request and a short answer. A larger answer counts in addition, and so
	// does a larger message of the client.
	requestBytes = 8 << 10
	// firstPage is how much of a log a read takes before it asks for room for
	// more. With its encoding it fits into ownAnswers, as does one event of
	// the usual 64 KiB.
	firstPage = 32 << 10
	// answerFactor is about how many bytes an answer takes per byte of a log
	// or file: the bytes, and their encoding as base64 or escaped text.
	answerFactor = 3
	// listRoom is the room that a page of run/list needs at first.
	listRoom = 4 << 10
	// crowdedStalled replaces Limits.Stalled if it is shorter, while the room
	// that all connections share is used up. A client whose
	// message does not get on is closed only then.
	crowdedStalled = 5 * time.Second
	// relayingAtOnce is how many connections read records, or hand them to the
	// kernel, at once. One that waits for its client does neither.
	relayingAtOnce = 8
	// pausedBytes is how many bytes of records all connections hold that wait for
	// their clients in the middle of a message. Beyond that they read them again.
	pausedBytes = 2 << 20
	// controlsAtOnce is how many control requests of a connection are run
	// even if it holds too much.
	controlsAtOnce = 16
)

// waits are how long a server waits for its clients. Only tests change them.
type waits struct {
	probe   time.Duration // see probeFor
	hold    time.Duration // see holdFor
	crowded time.Duration // see crowdedStalled
}

// Reasons why the server closes a connection.
var (
	errHandshake = errors.New("the client did not finish the handshake in time")
	errStalled   = errors.New("the client does not read")
	errUnsent    = errors.New("a message of the client takes too long, and the room for messages is used up")
)

// sized is the result of a request that has taken room and may have entered.
// reply gives both back.
type sized struct {
	result  any
	room    int64 // taken from the account
	entered bool
}

// largeAnswer is the type of [conn.large], roomForAnswer that of [conn.roomFor].
type (
	largeAnswer   func(ctx context.Context, n int64, answer func() (any, error)) (any, error)
	roomForAnswer func(ctx context.Context, n int64) (int64, error)
)

// enter waits for the turn of a large answer: a connection makes and sends one
// at a time. A caller that got in returns a *sized result, or calls leave.
func (c *conn) enter(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// tryEnter is enter without waiting.
func (c *conn) tryEnter() bool {
	select {
	case c.turn <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *conn) leave() { <-c.turn }

// make waits until the client has room for an answer, and the server may make
// another large one. Making one takes several times its size, so that few are
// made at once. The caller calls made. It must not wait for room meanwhile.
func (c *conn) make(ctx context.Context) error {
	c.network.ready()
	select {
	case c.server.making <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *conn) made() { <-c.server.making }

// readFirst reads the first page of an answer. Without an error it has entered,
// makes an answer, and has taken the room it returns. A read that waits for events, or for its turn,
// holds none.
func (c *conn) readFirst(ctx context.Context, run spool.RunID, q spool.Query) (page spool.Page, room int64, err error) {
	q.MaxBytes = min(q.MaxBytes, firstPage)
	read := func() error {
		page, err = c.backend.Read(ctx, run, q)
		return err
	}
	waited := q.Wait > 0
	if waited && read() != nil {
		return spool.Page{}, 0, err
	}
	if !c.tryEnter() {
		page, waited = spool.Page{}, false
		if err := c.enter(ctx); err != nil {
			return spool.Page{}, 0, err
		}
	}
	q.Wait = 0
	if err = c.account.Acquire(ctx, ownAnswers); err != nil {
		c.leave()
		return spool.Page{}, 0, err
	}
	if err = c.make(ctx); err != nil {
		c.giveUp(ownAnswers, false)
		return spool.Page{}, 0, err
	}
	if !waited && read() != nil {
		c.giveUp(ownAnswers, true)
		return spool.Page{}, 0, err
	}
	return page, ownAnswers, nil
}

// giveUp ends the turn of an answer that failed.
func (c *conn) giveUp(room int64, making bool) {
	if making {
		c.made()
	}
	c.account.Add(-room)
	c.leave()
}

// roomFor waits for room for an answer with n bytes of a file, and returns how
// much it took.
func (c *conn) roomFor(ctx context.Context, n int64) (int64, error) {
	room := min(answerFactor*n, c.server.opts.Limits.Unread/2)
	return room, c.account.Acquire(ctx, room)
}

// roomToRead returns how many of n bytes of a log there is room for at once,
// and how much it took. Without room the answer is short, and the client asks
// for the rest.
func (c *conn) roomToRead(n int) (bytes int, room int64) {
	bytes = int(min(int64(n), c.server.opts.Limits.Unread*3/4/answerFactor))
	for ; bytes > firstPage; bytes /= 2 {
		if room = answerFactor * int64(bytes); c.account.Try(room) {
			return bytes, room
		}
	}
	return 0, 0
}

// large makes a large answer of a file or blob of n bytes, in its turn.
func (c *conn) large(ctx context.Context, n int64, answer func() (any, error)) (any, error) {
	if err := c.enter(ctx); err != nil {
		return nil, err
	}
	room, err := c.roomFor(ctx, n)
	if err != nil {
		c.leave()
		return nil, err
	}
	if err := c.make(ctx); err != nil {
		c.giveUp(room, false)
		return nil, err
	}
	result, err := answer()
	if err != nil {
		c.giveUp(room, true)
		return nil, err
	}
	return &sized{result, room, true}, nil
}

// reply answers a request, and counts the answer until the client has read it.
func (c *conn) reply(r *rpc.Request, result any, err error) {
	var room int64
	s, large := result.(*sized)
	if large {
		result, room = s.result, s.room
		if s.entered {
			defer c.leave()
		}
	}
	var body json.RawMessage
	if err == nil {
		body, err = rpc.Encode(result)
	}
	if large {
		s.result = nil
		if s.entered {
			c.made()
		}
	}
	size := int64(len(body))
	if !large && size <= requestBytes {
		size = 0 // counted with the request
	}
	c.account.Add(size - room)
	r.Reply(body, err)
	c.account.Add(-size)
}

// admit waits until the connection may run another request, and returns what
// the request counts until it is answered. The caller is the goroutine that
// reads: a connection that holds too much is not read.
func (c *conn) admit(control bool) int64 {
	const n = requestBytes
	exempt := control && c.controls.Load() < controlsAtOnce
	// An error means that the connection ends.
	if exempt || c.account.Acquire(c.ctx, 0) != nil || c.requests.Acquire(c.ctx, n) != nil {
		c.requests.Add(n)
	}
	return n
}

// batches follows a run like [record.Follow]. The connection holds one batch at
// a time, which counts until the next one. Without room for a batch it reads
// the events in smaller pages. The log is known to have events up to last.
func (c *conn) batches(ctx context.Context, run spool.RunID, after, last spool.Seq) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for {
			room := int64(0)
			if after < last { // the first batch is there, and probably large
				room = 2 * record.BatchBytes
			}
			if c.account.Try(room) {
				var more bool
				if after, more = c.largeBatches(ctx, run, after, room, yield); !more {
					return
				}
			}
			var err error
			if after, last, err = c.smallBatch(ctx, run, after, yield); err != nil {
				if !errors.Is(err, errStop) {
					yield(nil, err)
				}
				return
			}
		}
	}
}

// errStop means that yield returned false.
var errStop = errors.New("stop")

// largeBatches follows a run until there is no room for a batch. It returns the
// cursor then, and whether the run goes on. The caller has taken room for the
// first batch, or none.
func (c *conn) largeBatches(ctx context.Context, run spool.RunID, after spool.Seq, room int64, yield func([]byte, error) bool) (spool.Seq, bool) {
	defer func() { c.account.Add(-room) }()
	for batch, err := range record.Follow(ctx, c.backend, run, after) {
		var b []byte
		if err == nil {
			b, err = batch.Load()
		}
		if err != nil {
			yield(nil, err)
			return after, false
		}
		n := int64(len(b) + len(b)/2) // and an event encoded for the client
		if n > room && !c.account.Try(n-room) {
			if first, again := record.First(b); again && len(b) > firstPage {
				return first - 1, true
			}
			c.account.Add(n - room)
		} else if n < room {
			c.account.Add(n - room)
		}
		room = n
		if !yield(b, nil) {
			return after, false
		}
		c.account.Add(-room)
		room = 0
	}
	return after, false
}

// smallBatch yields the next events, if there are any, when there is no room for
// many, in the turn of the connection. It returns the last of them and the last
// of the log, or errStop if yield returned false
// or the log has ended.
func (c *conn) smallBatch(ctx context.Context, run spool.RunID, after spool.Seq, yield func([]byte, error) bool) (next, last spool.Seq, err error) {
	page, room, err := c.readFirst(ctx, run, spool.Query{After: after, MaxBytes: firstPage})
	if err != nil {
		return after, 0, err
	}
	defer c.leave()
	defer c.account.Add(-room)
	b := make([]byte, 0, firstPage)
	for i := range page.Events {
		if b, err = record.Append(b, &page.Events[i]); err != nil {
			c.made()
			return after, 0, fmt.Errorf("run %s: %w", run, err)
		}
	}
	c.made()
	next, last, ended := page.Next, page.Info.Last, page.End()
	if len(b) > 0 && !yield(b, nil) || ended {
		return next, last, errStop
	}
	return next, last, nil
}

// connect counts a connection over the network, or returns false if there are
// too many.
func (s *Server) connect() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns >= s.opts.Limits.Connections {
		s.log.Warn("refused a connection", "reason", "too many connections", "limit", s.opts.Limits.Connections)
		return false
	}
	s.conns++
	return true
}

func (s *Server) disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
}
