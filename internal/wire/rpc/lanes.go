package rpc

import (
	"sync"

	"github.com/spool-run/spool/internal/gopool"
)

// Lanes runs the requests of one connection: requests with the same key run one
// after the other in the order of their arrival, all others run concurrently.
// Control messages use no lane.
type Lanes struct {
	maxItems, maxBytes int

	mu      sync.Mutex
	room    sync.Cond
	waiting map[string][]item // has a key while a goroutine works on it
	items   int
	bytes   int
	pool    gopool.Pool
}

type item struct {
	size int
	run  func()
}

// NewLanes returns lanes that hold at most maxItems items of maxBytes bytes.
// Beyond that [Lanes.Go] blocks, and with it the goroutine that reads, so that
// the peer has to slow down.
func NewLanes(maxItems, maxBytes int) *Lanes {
	l := &Lanes{maxItems: maxItems, maxBytes: maxBytes, waiting: make(map[string][]item)}
	l.room.L = &l.mu
	return l
}

// Go calls run, which holds size bytes of memory, after all earlier functions of
// the same key have returned. With an empty key it calls run at once.
func (l *Lanes) Go(key string, size int, run func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.items > 0 && (l.items >= l.maxItems || l.bytes+size > l.maxBytes) {
		l.room.Wait()
	}
	l.items++
	l.bytes += size
	it := item{size, run}
	if key == "" {
		l.pool.Go(func() { l.do(it) })
		return
	}
	queue, busy := l.waiting[key]
	l.waiting[key] = append(queue, it)
	if !busy {
		l.pool.Go(func() { l.drain(key) })
	}
}

func (l *Lanes) drain(key string) {
	for {
		l.mu.Lock()
		queue := l.waiting[key]
		if len(queue) == 0 {
			delete(l.waiting, key)
			l.mu.Unlock()
			return
		}
		it := queue[0]
		queue[0] = item{}
		l.waiting[key] = queue[1:]
		l.mu.Unlock()
		l.do(it)
	}
}

func (l *Lanes) do(it item) {
	it.run()
	l.mu.Lock()
	l.items--
	l.bytes -= it.size
	l.mu.Unlock()
	l.room.Signal()
}

// Wait returns once all functions have returned. Go must not be called
// meanwhile.
func (l *Lanes) Wait() { l.pool.Wait() }
