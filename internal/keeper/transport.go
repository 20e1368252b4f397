package keeper

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// transport is a connection between a keeper and a server, as either end sees
// it. Most of its messages are JSON-RPC and belong to rpc. Some mechanisms make the
// start of a process and the updates of runs cheap:
//
//   - Bytes go through two pipes instead of the socket (pipes_linux.go).
//   - A start, its answer, the updates of runs and the requests for them are binary
//     messages.
//   - The goroutine that reads also runs a short start, which saves waking
//     another one; see runInline.
//   - Updates, and the requests for them, are written together if there are several; see
//     frames.writeSoon.
type transport struct {
	rpc    *rpc.Conn
	frames *frames

	stall      *stallTimer   // on the keeper's end; else nil
	reader     atomic.Uint64 // number of the goroutine that reads
	readers    sync.WaitGroup
	nextReader func()     // starts another one
	ended      chan error // has room for one: why reading ended

	mu     sync.Mutex
	starts map[uint64]func(startAnswer) // that wait for their answers, by id; nil once the connection has ended
	lastID uint64
}

// startAnswer is the keeper's answer to a start.
type startAnswer struct {
	info []byte // encoded
	err  error
}

// The kinds of binary messages. The kind is the first byte.
const (
	messageStarted = 1 // answers a start: id, info of the run
	messageUpdate  = 2 // first update of a run
	messageStart   = 3 // asks for a start: id, spec
	messageRefused = 4 // answers a start: id, JSON of an [rpc.Error]
	messageAwait   = 5 // asks for an update: id, cursor, run
	messageNews    = 6 // answers that: id, update
	messageNoNews  = 7 // answers that: id, JSON of an [rpc.Error]
)

// messageRoom is the capacity that most messages fit in.
const messageRoom = 512

// handler handles the messages of the peer, on the goroutine that reads.
type handler interface {
	rpc.Handler
	// binary handles a binary message that does not answer a start.
	binary(kind byte, b []byte) error
}

func newTransport(f *frames) *transport {
	return &transport{rpc: rpc.NewConn(f), frames: f, ended: make(chan error, 1), starts: make(map[uint64]func(startAnswer))}
}

// dialTransport returns the server's end of a connection to a keeper. Only a
// keeper of the same build is known to accept pipes.
func dialTransport(nc net.Conn, name string, pipes bool) (*transport, error) {
	if !pipes {
		return newTransport(newFrames(nc, name)), nil
	}
	stream, err := offerPipes(nc)
	if err != nil {
		return nil, err
	}
	return newTransport(newFrames(stream, name)), nil
}

// acceptTransport returns the keeper's end of a connection.
func acceptTransport(nc net.Conn) (*transport, error) {
	stream, err := acceptPipes(nc)
	if err != nil {
		return nil, err
	}
	t := newTransport(newFrames(stream, "keeper client"))
	if t.stall, err = newStallTimer(func() { t.nextReader() }); err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	return t, nil
}

// close closes the connection; serve returns soon after.
func (t *transport) close() error { return t.frames.Close() }

// serve reads and handles messages until the connection ends.
func (t *transport) serve(ctx context.Context, h handler) {
	read := func(reader uint64) {
		if err := t.read(ctx, h, reader); err != nil {
			select {
			case t.ended <- err:
			default: // another reader reported the end
			}
		}
	}
	t.nextReader = func() {
		reader := t.reader.Add(1)
		t.readers.Go(func() { read(reader) })
	}
	read(0)
	t.rpc.End(<-t.ended)
	t.endStarts()
	t.readers.Wait()
	t.frames.end()
	if t.stall != nil {
		t.stall.close()
	}
}

// read handles messages until the connection ends. It returns nil when another
// goroutine has taken over reading.
func (t *transport) read(ctx context.Context, h handler, reader uint64) error {
	for t.reader.Load() == reader {
		b, isBinary, err := t.frames.Read(ctx)
		if err == nil {
			err = t.receive(h, b, isBinary)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive handles one message.
func (t *transport) receive(h handler, b []byte, isBinary bool) error {
	if !isBinary {
		return t.rpc.Receive(h, b, false)
	}
	if len(b) == 0 {
		return errors.New("empty binary message")
	}
	switch kind, b := b[0], b[1:]; kind {
	case messageStarted, messageRefused:
		return t.settle(kind, b)
	default:
		return h.binary(kind, b)
	}
}

// runInline calls f on the goroutine that reads, which is the caller's, and
// reports true. If f takes long, another goroutine takes over reading. It
// reports false, without calling f, if a further message already waits or an
// earlier f still runs.
func (t *transport) runInline(f func()) bool {
	if t.frames.pending() || !t.stall.begin() {
		return false
	}
	defer t.stall.end()
	f()
	return true
}

// start asks the keeper for a start and returns the encoded info of the run.
// The function encode appends the spec. An error of the keeper is an
// [*rpc.Error]; a lost connection is [rpc.ErrConnClosed].
func (t *transport) start(ctx context.Context, encode func(dst []byte) ([]byte, error)) ([]byte, error) {
	answer := make(chan startAnswer, 1)
	id, err := t.expect(func(a startAnswer) { answer <- a })
	if err != nil {
		return nil, err
	}
	b, err := encode(appendHeader(make([]byte, 0, messageRoom), messageStart, id))
	if err != nil {
		t.forget(id)
		return nil, err
	}
	_ = t.rpc.Send(true, b) // a failed write ends the connection
	select {
	case a := <-answer:
		return a.info, a.err
	case <-ctx.Done():
		// The start stays registered until its answer arrives, which
		// would otherwise look like a protocol error.
		return nil, context.Cause(ctx)
	}
}

// tryStart is start that does not wait: it has done called with the answer, by the
// goroutine that reads, so that it must not block. It reports false, and done is not
// called, if the keeper cannot be asked at once.
func (t *transport) tryStart(encode func(dst []byte) ([]byte, error), done func(startAnswer)) bool {
	id, err := t.expect(done)
	if err != nil {
		return false
	}
	b, err := encode(appendHeader(make([]byte, 0, messageRoom), messageStart, id))
	if err == nil && t.trySend(b) {
		return true
	}
	return !t.forget(id) // the connection has ended meanwhile, and that was the answer
}

// expect has done called with the answer to a start, or with [rpc.ErrConnClosed].
func (t *transport) expect(done func(startAnswer)) (id uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.starts == nil {
		return 0, t.closedError()
	}
	t.lastID++
	t.starts[t.lastID] = done
	return t.lastID, nil
}

// forget reports whether a start still waited for its answer.
func (t *transport) forget(id uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, waits := t.starts[id]
	delete(t.starts, id)
	return waits
}

// endStarts tells all starts that wait that the connection has ended.
func (t *transport) endStarts() {
	t.mu.Lock()
	starts := t.starts
	t.starts = nil
	t.mu.Unlock()
	for _, done := range starts {
		done(startAnswer{err: t.closedError()})
	}
}

func (t *transport) closedError() error { return fmt.Errorf("%w: %w", rpc.ErrConnClosed, t.rpc.Err()) }

// settle passes an answer to the start that waits for it.
func (t *transport) settle(kind byte, b []byte) error {
	id, b, err := cutID(b)
	if err != nil {
		return err
	}
	a := startAnswer{info: b}
	if kind == messageRefused {
		refused, err := decodeRefused(b)
		if err != nil {
			return fmt.Errorf("decode error of a start: %w", err)
		}
		a = startAnswer{err: refused}
	}
	t.mu.Lock()
	done, ok := t.starts[id]
	delete(t.starts, id)
	t.mu.Unlock()
	if !ok {
		return fmt.Errorf("answer to a start that was never sent: id %d", id)
	}
	done(a)
	return nil
}

// decodeRefused returns the error that refused has sent.
func decodeRefused(b []byte) (*rpc.Error, error) {
	e := new(rpc.Error)
	return e, json.Unmarshal(b, e)
}

// started answers a start. The function encode appends the info of the run.
func (t *transport) started(id uint64, encode func(dst []byte) []byte) {
	b := encode(appendHeader(make([]byte, 0, messageRoom), messageStarted, id))
	_ = t.rpc.Send(true, b) // nothing to do if the connection is lost
}

// refused answers a start, or a request for an update, that failed.
func (t *transport) refused(kind byte, id uint64, err error) {
	var e *rpc.Error
	if !errors.As(err, &e) {
		e = rpc.Errorf(rpc.CodeInternal, "%v", err)
	}
	b, err := json.Marshal(e)
	if err != nil { // only invalid Data can fail, and ours is valid
		b = []byte(`{"code":-32603,"message":"internal error"}`)
	}
	_ = t.rpc.Send(true, appendHeader(nil, kind, id), b)
}

// trySend sends a binary message if that is possible without waiting, and
// reports whether it did.
func (t *transport) trySend(b []byte) bool { return t.frames.tryWrite(true, b) }

// send sends a binary message.
func (t *transport) send(b []byte) error { return t.rpc.Send(true, b) }

// sendSoon sends a binary message soon, with others, or reports false; see
// frames.writeSoon.
func (t *transport) sendSoon(b []byte) bool { return t.frames.writeSoon(true, b) }

// appendHeader appends the kind of a message and the id of its request.
func appendHeader(dst []byte, kind byte, id uint64) []byte {
	return binary.AppendUvarint(append(dst, kind), id)
}

// cutID splits a message into the id of its request and the rest.
func cutID(b []byte) (id uint64, rest []byte, err error) {
	id, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, errors.New("binary message without an id")
	}
	return id, b[n:], nil
}
