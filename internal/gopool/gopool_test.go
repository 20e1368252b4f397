package gopool

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestGoRunsEverythingOnce calls Go from many goroutines, and from pool functions.
func TestGoRunsEverythingOnce(t *testing.T) {
	var p Pool
	var ran atomic.Int64
	var from sync.WaitGroup
	for range 8 {
		from.Go(func() {
			for range 500 {
				p.Go(func() {
					ran.Add(1)
					p.Go(func() { ran.Add(1) })
				})
			}
		})
	}
	from.Wait()
	p.Wait()
	if got := ran.Load(); got != 8000 {
		t.Errorf("%d functions ran, want 8000", got)
	}
}

// TestGoDoesNotWait runs more functions at once than the pool keeps goroutines.
func TestGoDoesNotWait(t *testing.T) {
	var p Pool
	var all sync.WaitGroup
	all.Add(4 * keep)
	for range 4 * keep {
		p.Go(func() {
			all.Done()
			all.Wait() // for all of them at once
		})
	}
	p.Wait()
}

// TestGoKeepsGoroutines checks that functions run one after the other share a
// goroutine.
func TestGoKeepsGoroutines(t *testing.T) {
	var p Pool
	defer p.Wait()
	seen := make(chan struct{})
	parked := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting) == 1
	}
	for range 100 {
		p.Go(func() { seen <- struct{}{} })
		<-seen
		for !parked() {
			runtime.Gosched()
		}
	}
}

// TestRelease checks that no goroutine is left while there is nothing to do, also of a
// function that releases the pool itself, and that the pool goes on after that.
func TestRelease(t *testing.T) {
	var p Pool
	defer p.Wait()
	left := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.waiting)
	}
	for range 3 {
		began, end := make(chan struct{}), make(chan struct{})
		for range 2 * keep {
			p.Go(func() { began <- struct{}{}; <-end })
		}
		for range 2 * keep {
			<-began
		}
		close(end)
		for left() < keep {
			runtime.Gosched()
		}
		p.Go(p.Release)
		p.wg.Wait() // all have ended
		if n := left(); n != 0 {
			t.Errorf("%d goroutines count as idle", n)
		}
	}
	if n := idle.Load(); n != 0 {
		t.Errorf("%d goroutines count as idle in all pools", n)
	}
}

// TestGoexit checks that a function may end its goroutine.
func TestGoexit(t *testing.T) {
	var p Pool
	p.Go(runtime.Goexit)
	p.Go(func() {})
	p.Wait()
}

// TestIdleGoroutinesAreBounded has many pools become idle.
func TestIdleGoroutinesAreBounded(t *testing.T) {
	before, waiting := idle.Load(), 0
	pools := make([]Pool, 4*keepAll)
	for i := range pools {
		pools[i].Go(func() {})
	}
	for i := range pools {
		pools[i].mu.Lock()
		waiting += len(pools[i].waiting)
		pools[i].mu.Unlock()
	}
	if waiting > keepAll {
		t.Errorf("%d goroutines are idle, want at most %d", waiting, keepAll)
	}
	for i := range pools {
		pools[i].Wait()
	}
	if n := idle.Load(); n != before {
		t.Errorf("%d goroutines count as idle, want %d", n, before)
	}
}
