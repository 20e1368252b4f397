package keeper

import (
	"context"
	"sync/atomic"

	"github.com/spool-run/spool"
)

// OnEvent has f called once, when there is an event after a cursor or the run is closed,
// mostly by the goroutine that reads from the keeper. f must not block. After stop it is
// not called any more, unless it is being called. If that is so already, stop is nil and f
// is not called.
func (b *Backend) OnEvent(ctx context.Context, id spool.RunID, after spool.Seq, f func()) (stop func(), err error) {
	m, err := b.mirrorAfter(ctx, id, after)
	if err != nil {
		return nil, err
	}
	if last, sealed := m.log.Last(); last > after || sealed {
		return nil, nil
	}
	m.addReader() // it waits
	n := &notice{mirror: m, f: f}
	n.unwatch = m.log.Watch(after, n.call)
	m.request(after)
	return n.stop, nil
}

// notice is a function to call when a mirror has an event.
type notice struct {
	mirror  *mirror
	f       func()
	unwatch func()
	over    atomic.Bool
}

func (n *notice) call() {
	if n.over.CompareAndSwap(false, true) {
		n.mirror.removeReader()
		n.f()
	}
}

func (n *notice) stop() {
	if n.over.CompareAndSwap(false, true) {
		n.unwatch()
		n.mirror.removeReader()
	}
}
