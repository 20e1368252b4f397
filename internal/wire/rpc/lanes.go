package rpc

import (
	"sync"

	"github.com/spool-run/spool/internal/crew"
)

// Lanes runs work of one connection: what shares a key runs one after the
// other in the order it came, everything else side by side. Control messages
// use no lane at all.
type Lanes struct {
	maxItems, maxBytes int

	mu      sync.Mutex
	room    sync.Cond
	waiting map[string][]item // present while a goroutine works on the key
	items   int
	bytes   int
	crew    crew.Crew
}

type item struct {
	size int
	run  func()
}

// NewLanes returns lanes that hold at most so many items and bytes; beyond
// that [Lanes.Go] waits, which is how a flood is pushed back to its sender.
func NewLanes(maxItems, maxBytes int) *Lanes {
	l := &Lanes{maxItems: maxItems, maxBytes: maxBytes, waiting: make(map[string][]item)}
	l.room.L = &l.mu
	return l
}

// Go runs the work, which holds size bytes, after all earlier work of the
// same key. An empty key means that nothing need be waited for.
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
		l.crew.Go(func() { l.do(it) })
		return
	}
	queue, busy := l.waiting[key]
	l.waiting[key] = append(queue, it)
	if !busy {
		l.crew.Go(func() { l.drain(key) })
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

// Wait returns once all work is done. No work may be added meanwhile.
func (l *Lanes) Wait() { l.crew.Wait() }
