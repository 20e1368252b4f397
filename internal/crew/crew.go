// Package crew runs functions side by side on goroutines that stay for the
// next one. A new goroutine starts with a small stack, and growing it costs
// more than many a short function does: where work comes in bursts of the same
// depth, whoever did the last piece is better prepared.
package crew

import "sync"

// keep is how many goroutines of a crew wait for work.
const keep = 16

// Crew runs functions, each on a goroutine of its own while it runs. The zero
// value is ready; [Crew.Wait] must be called in the end.
type Crew struct {
	wg sync.WaitGroup

	mu      sync.Mutex
	waiting []chan func()
	over    bool // nobody is to wait for work any more
}

// Go calls f on another goroutine.
func (c *Crew) Go(f func()) {
	c.mu.Lock()
	n := len(c.waiting)
	if n == 0 {
		c.mu.Unlock()
		c.wg.Go(func() { c.work(f) })
		return
	}
	next := c.waiting[n-1] // whose stack and caches are warm
	c.waiting = c.waiting[:n-1]
	c.mu.Unlock()
	next <- f // has room for one, and gets one
}

// work does one piece after the other.
func (c *Crew) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		f = nil //nolint:ineffassign,wastedassign // not to be kept while there is nothing to do
		c.mu.Lock()
		if c.over || len(c.waiting) >= keep {
			c.mu.Unlock()
			return
		}
		c.waiting = append(c.waiting, next)
		c.mu.Unlock()
		f = <-next
	}
}

// Wait returns once all functions have, those that they started included, and
// no goroutine is left.
func (c *Crew) Wait() {
	c.mu.Lock()
	c.over = true
	waiting := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	for _, next := range waiting {
		close(next)
	}
	c.wg.Wait()
}
