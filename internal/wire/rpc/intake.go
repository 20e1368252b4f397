package rpc

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

// Intake limits the bytes of messages that a server holds for all its peers:
// those that are being received, and requests until they are answered. A
// message counts from its first byte beyond a size that is free. A connection
// whose message finds no room is not read until others give room back.
//
// Messages that are half received could wait for each other. So one message at
// a time may exceed the total.
type Intake struct {
	free  int
	total int64

	mu     sync.Mutex
	used   int64
	beyond *held        // the message that may exceed the total
	queue  []*intakeAsk // in order
}

// intakeAsk is a message that waits for room.
type intakeAsk struct {
	h       *held
	n       int64
	granted chan struct{}
}

// held is what one message holds. Its methods do nothing if it is nil: a
// message that is free.
type held struct {
	intake *Intake
	n      int64 // changed under intake.mu
}

// receiveStep is how much of a message a client must send in the time after
// which it counts as stalled.
const receiveStep = 64 << 10

// NewIntake returns an intake of total bytes. The first free bytes of a message
// do not count.
func NewIntake(free int, total int64) *Intake { return &Intake{free: free, total: total} }

// Used returns how many bytes are held.
func (in *Intake) Used() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.used
}

// Crowded reports whether a message waits for room.
func (in *Intake) Crowded() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.queue) > 0
}

// grant takes n bytes for a message if it may have them. Callers hold in.mu.
func (in *Intake) grant(h *held, n int64) bool {
	if in.used+n > in.total {
		if in.beyond != nil && in.beyond != h {
			return false
		}
		in.beyond = h
	}
	in.used += n
	h.n += n
	return true
}

// try takes n bytes if that is possible at once and within the total.
func (in *Intake) try(h *held, n int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(in.queue) > 0 || in.used+n > in.total {
		return false
	}
	return in.grant(h, n)
}

// take takes n bytes, and waits until that is possible.
func (in *Intake) take(ctx context.Context, h *held, n int64) error {
	in.mu.Lock()
	if (len(in.queue) == 0 || in.beyond == h) && in.grant(h, n) {
		in.mu.Unlock()
		return nil
	}
	ask := &intakeAsk{h, n, make(chan struct{})}
	in.queue = append(in.queue, ask)
	in.mu.Unlock()
	select {
	case <-ask.granted:
		return nil
	case <-ctx.Done():
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if i := slices.Index(in.queue, ask); i >= 0 {
		in.queue = slices.Delete(in.queue, i, i+1)
		in.settle() // others may have waited behind it
	}
	return context.Cause(ctx)
}

// release gives back what a message holds.
func (h *held) release() {
	if h == nil {
		return
	}
	in := h.intake
	in.mu.Lock()
	defer in.mu.Unlock()
	in.used -= h.n
	h.n = 0
	if in.beyond == h {
		in.beyond = nil
	}
	in.settle()
}

// settle grants what waits, in order. Callers hold in.mu.
func (in *Intake) settle() {
	for len(in.queue) > 0 && in.grant(in.queue[0].h, in.queue[0].n) {
		close(in.queue[0].granted)
		in.queue = in.queue[1:]
	}
}

// WebSocket is like the function [WebSocket] for a connection whose messages
// count against the intake. If c was accepted on frames, they write the messages.
func (in *Intake) WebSocket(c *websocket.Conn, frames *Frames, name string) *Received {
	r := &Received{intake: in}
	r.webSocket = WebSocket(c, name).(*webSocket)
	r.frames = frames
	return r
}

// Received is a transport whose messages count against an [Intake].
type Received struct {
	*webSocket
	intake *Intake
	last   *held // by the message that is received, or was last, until it is handed over

	// step is when the message that is being received last got on by a
	// receiveStep, as nanoseconds since receiveClock. It is zero while no
	// message holds room.
	step atomic.Int64
}

// receiveClock is the origin of Received.step.
var receiveClock = time.Now()

// StalledFor returns how long a message that holds room has not got on, because
// the peer sends too little of it or because there is no room for more.
func (r *Received) StalledFor() time.Duration {
	if step := r.step.Load(); step != 0 {
		return time.Since(receiveClock) - time.Duration(step)
	}
	return 0
}

// Read implements [Transport].
func (r *Received) Read(ctx context.Context) ([]byte, bool, error) {
	typ, m, err := r.conn.Reader(ctx)
	if err != nil {
		return nil, false, err
	}
	b, err := r.receive(ctx, m)
	r.step.Store(0)
	if err != nil {
		r.handOver().release()
		return nil, false, err
	}
	r.guess = min(len(b), maxGuess)
	return b, typ == websocket.MessageBinary, nil
}

// receive reads one message.
func (r *Received) receive(ctx context.Context, m io.Reader) ([]byte, error) {
	n := max(minBuffer, r.guess+r.guess/8)
	if n > r.intake.free {
		r.last = &held{intake: r.intake}
		if !r.intake.try(r.last, int64(n)) {
			r.last, n = nil, r.intake.free
		}
	}
	b, stepped := make([]byte, 0, n), 0
	r.progress()
	for {
		if len(b) == cap(b) {
			if len(b) > MaxMessage {
				return nil, errTooLong
			}
			if err := r.grow(ctx, 2*cap(b)); err != nil {
				return nil, err
			}
			r.progress()
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		n, err := m.Read(b[len(b):min(cap(b), len(b)+receiveStep)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
		if len(b)-stepped >= receiveStep {
			stepped = len(b)
			r.progress()
		}
	}
}

// progress notes that a message which holds room gets on.
func (r *Received) progress() {
	if r.last != nil {
		r.step.Store(int64(time.Since(receiveClock)))
	}
}

// grow waits for room for a buffer of n bytes.
func (r *Received) grow(ctx context.Context, n int) error {
	if n <= r.intake.free {
		return nil
	}
	if r.last == nil {
		r.last = &held{intake: r.intake}
	}
	return r.intake.take(ctx, r.last, int64(n)-r.last.n) // only this goroutine changes n until the message is handed over
}

// handOver returns what the message that was read last holds. The caller
// releases it.
func (r *Received) handOver() *held {
	h := r.last
	r.last = nil
	return h
}
