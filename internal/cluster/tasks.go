package cluster

import (
	"context"
	"sync"
)

// tasks are goroutines that end with the cluster.
type tasks struct {
	ctx context.Context
	wg  sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// start runs a task, unless the cluster is closing.
func (t *tasks) start(do func(context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		t.wg.Go(func() { do(t.ctx) })
	}
}

// wait waits for the end of all tasks. None begins any more.
func (t *tasks) wait() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.wg.Wait()
}
