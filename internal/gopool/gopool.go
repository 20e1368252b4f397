// Package gopool runs functions on goroutines that are reused. A new goroutine
// starts with a small stack, and growing it costs more than a short function: if
// work comes in bursts of similar depth, a goroutine that just finished is faster.
package gopool

import (
	"sync"
	"sync/atomic"
)

const (
	// keep is how many idle goroutines a pool keeps.
	keep = 16
	// keepAll is how many all pools of the process keep: a server has pools for
	// each connection, and the stacks of idle goroutines are most of what an
	// idle connection takes.
	keepAll = 128
)

// idle counts the idle goroutines of all pools.
var idle atomic.Int64

// Pool runs functions concurrently. The zero value is ready to use; the owner must
// call [Pool.Wait] at the end.
type Pool struct {
	wg sync.WaitGroup

	mu      sync.Mutex
	waiting []chan func()
	idles   bool // goroutines without work wait for more
	over    bool // they never do again
}

// mayIdle counts an idle goroutine, if there are not too many.
func mayIdle() bool {
	if idle.Add(1) <= keepAll {
		return true
	}
	idle.Add(-1)
	return false
}

// Go calls f on another goroutine.
func (p *Pool) Go(f func()) {
	p.mu.Lock()
	p.idles = !p.over
	n := len(p.waiting)
	if n == 0 {
		p.mu.Unlock()
		p.wg.Go(func() { p.work(f) })
		return
	}
	next := p.waiting[n-1] // its stack and caches are warm
	p.waiting = p.waiting[:n-1]
	p.mu.Unlock()
	idle.Add(-1)
	next <- f // never blocks: the channel has space for one
}

// work runs f, then one function after the other.
func (p *Pool) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		grow(0)
		f()
		f = nil //nolint:ineffassign,wastedassign // frees f while the goroutine waits
		p.mu.Lock()
		if !p.idles || len(p.waiting) >= keep || !mayIdle() {
			p.mu.Unlock()
			return
		}
		p.waiting = append(p.waiting, next)
		p.mu.Unlock()
		f = <-next
	}
}

// Release ends the idle goroutines. Those that work end with their function, unless [Pool.Go]
// was called meanwhile. The owner calls it when there may be nothing to do for long.
func (p *Pool) Release() { p.release(false) }

// Wait returns once all functions have returned, including those that they
// started, and no goroutine is left.
func (p *Pool) Wait() {
	p.release(true)
	p.wg.Wait()
}

func (p *Pool) release(over bool) {
	p.mu.Lock()
	p.idles, p.over = false, p.over || over
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	idle.Add(-int64(len(waiting)))
	for _, next := range waiting {
		close(next)
	}
}

// room is the space on its stack that a function gets before it begins.
const room = 4 << 10

// grow makes the stack large enough for most functions while there is almost
// nothing on it. It would grow in several steps else, and each has to adjust
// all frames: that was a sixth of the work of a keeper of many runs. The
// collector makes the stacks of goroutines that wait small again.
//
//go:noinline
func grow(n int) byte {
	var frame [room]byte
	return frame[n]
}
