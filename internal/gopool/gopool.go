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
	over    bool // goroutines end instead of waiting for work
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
		f()
		f = nil //nolint:ineffassign,wastedassign // frees f while the goroutine waits
		p.mu.Lock()
		if p.over || len(p.waiting) >= keep || !mayIdle() {
			p.mu.Unlock()
			return
		}
		p.waiting = append(p.waiting, next)
		p.mu.Unlock()
		f = <-next
	}
}

// Wait returns once all functions have returned, including those that they
// started, and no goroutine is left.
func (p *Pool) Wait() {
	p.mu.Lock()
	p.over = true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	idle.Add(-int64(len(waiting)))
	for _, next := range waiting {
		close(next)
	}
	p.wg.Wait()
}
