package host

import (
	"context"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/engine"
)

// Bounds of a run's input queue.
const (
	// maxInputBytes may wait for a run that does not read; a larger single
	// input is taken when the queue is empty.
	maxInputBytes = 1 << 20
	// rememberedInputs is how many ids are known for a repeated send.
	rememberedInputs = 4096
)

// inputQueue is the ordered lane into a run. An input is acknowledged when it
// is queued; a goroutine delivers while there is something to deliver.
type inputQueue struct {
	ctx    context.Context // ends delivery
	cancel context.CancelFunc

	mu         sync.Mutex
	session    engine.Session
	queue      []spool.Input
	bytes      int
	delivering bool
	closed     bool          // no more input will be taken
	room       chan struct{} // closed when the queue shrinks or ends; nil while nobody waits
	seen       map[string]bool
	order      []string // of seen, oldest first
	wg         sync.WaitGroup
}

func newInputQueue(ctx context.Context) *inputQueue {
	q := &inputQueue{seen: make(map[string]bool)}
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q
}

func (q *inputQueue) begin(s engine.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.session = s
}

// put queues an input. It waits only while the queue is full.
func (q *inputQueue) put(ctx context.Context, in spool.Input) (spool.Receipt, error) {
	for {
		q.mu.Lock()
		if in.ID != "" && q.seen[in.ID] {
			q.mu.Unlock()
			return spool.Receipt{Repeated: true}, nil
		}
		if q.closed {
			q.mu.Unlock()
			return spool.Receipt{}, spool.ErrInputClosed
		}
		if err := q.session.Takes(in); err != nil {
			q.mu.Unlock()
			return spool.Receipt{}, err
		}
		if q.bytes == 0 || q.bytes+len(in.Bytes) <= maxInputBytes {
			q.add(in)
			q.mu.Unlock()
			return spool.Receipt{}, nil
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return spool.Receipt{}, context.Cause(ctx)
		}
	}
}

// add queues an input that fits. Callers hold q.mu.
func (q *inputQueue) add(in spool.Input) {
	if in.ID != "" {
		q.seen[in.ID] = true
		q.order = append(q.order, in.ID)
		if len(q.order) > rememberedInputs {
			delete(q.seen, q.order[0])
			q.order = q.order[1:]
		}
	}
	q.queue = append(q.queue, in)
	q.bytes += len(in.Bytes)
	if !q.delivering {
		q.delivering = true
		q.wg.Go(q.deliver)
	}
}

func (q *inputQueue) deliver() {
	for {
		q.mu.Lock()
		if len(q.queue) == 0 || q.closed {
			q.delivering = false
			q.mu.Unlock()
			return
		}
		in := q.queue[0]
		session := q.session
		q.mu.Unlock()

		err := session.Send(q.ctx, in)

		q.mu.Lock()
		q.queue[0] = spool.Input{}
		q.queue = q.queue[1:]
		q.bytes -= len(in.Bytes)
		if err != nil || in.Kind == spool.InputEOF {
			q.closed = true
			q.queue, q.bytes = nil, 0
		}
		q.wake()
		q.mu.Unlock()
	}
}

// wake lets those who wait look again. Callers hold q.mu.
func (q *inputQueue) wake() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// end refuses further input and returns once nothing is being delivered.
func (q *inputQueue) end() {
	q.mu.Lock()
	q.closed = true
	q.wake()
	q.mu.Unlock()
	q.cancel()
	q.wg.Wait()
}
