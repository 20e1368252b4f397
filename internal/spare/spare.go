// Package spare keeps things ready that take long to make, so that the caller
// that needs one does not wait for it.
package spare

import "sync"

// Pool holds spares. The fields are set before the first use.
type Pool[T any] struct {
	// Low and High bound the filling: it begins when no more than Low spares
	// are ready and makes them until there are High. Filling many at once
	// rather than one by one leaves most callers the processor for themselves.
	Low, High int
	// Max is how many spares [Pool.Give] keeps, if that is more than High.
	Max int
	// Make makes a spare. An error ends the filling: the caller that finds no
	// spare makes its own, and learns the reason.
	Make func() (T, error)
	// Discard ends a spare that is not needed.
	Discard func(T)

	mu      sync.Mutex
	ready   []T
	filling bool
	closed  bool
	wg      sync.WaitGroup // the goroutine that fills
}

// Take returns the spare that was added last, if there is one.
func (p *Pool[T]) Take() (_ T, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take()
}

func (p *Pool[T]) take() (t T, ok bool) {
	n := len(p.ready)
	if n == 0 {
		return t, false
	}
	t, p.ready[n-1] = p.ready[n-1], t
	p.ready = p.ready[:n-1]
	return t, true
}

// Fill begins to make spares in the background if few are ready.
func (p *Pool[T]) Fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
}

func (p *Pool[T]) begin() {
	if len(p.ready) <= p.Low && len(p.ready) < p.High && !p.filling && !p.closed {
		p.filling = true
		p.wg.Go(p.fill)
	}
}

// TakeFill takes a spare, and fills as [Pool.Fill] does.
func (p *Pool[T]) TakeFill() (t T, ok bool) {
	if p.High == 0 {
		return t, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begin()
	return p.take()
}

func (p *Pool[T]) fill() {
	p.mu.Lock()
	for len(p.ready) < p.High && !p.closed {
		p.mu.Unlock()
		t, err := p.Make()
		if err != nil {
			p.mu.Lock()
			break
		}
		p.Give(t)
		p.mu.Lock()
	}
	p.filling = false
	p.mu.Unlock()
}

// Give keeps a spare, or discards it if the pool is full or closed.
func (p *Pool[T]) Give(t T) {
	p.mu.Lock()
	keep := !p.closed && len(p.ready) < max(p.High, p.Max)
	if keep {
		p.ready = append(p.ready, t)
	}
	p.mu.Unlock()
	if !keep {
		p.Discard(t)
	}
}

// Wait waits until no spare is being made.
func (p *Pool[T]) Wait() { p.wg.Wait() }

// Close waits until no spare is being made and discards all of them. The pool
// keeps none from then on.
func (p *Pool[T]) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.wg.Wait()
	p.mu.Lock()
	ready := p.ready
	p.ready = nil
	p.mu.Unlock()
	for _, t := range ready {
		p.Discard(t)
	}
}
