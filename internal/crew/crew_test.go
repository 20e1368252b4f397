package crew

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestGoRunsEverythingOnce starts work from many goroutines, and from work.
func TestGoRunsEverythingOnce(t *testing.T) {
	var c Crew
	var ran atomic.Int64
	var from sync.WaitGroup
	for range 8 {
		from.Go(func() {
			for range 500 {
				c.Go(func() {
					ran.Add(1)
					c.Go(func() { ran.Add(1) })
				})
			}
		})
	}
	from.Wait()
	c.Wait()
	if got := ran.Load(); got != 8000 {
		t.Errorf("%d functions ran, want 8000", got)
	}
}

// TestGoDoesNotWait has more functions under way than the crew keeps.
func TestGoDoesNotWait(t *testing.T) {
	var c Crew
	var all sync.WaitGroup
	all.Add(4 * keep)
	for range 4 * keep {
		c.Go(func() {
			all.Done()
			all.Wait() // for all of them at once
		})
	}
	c.Wait()
}

// TestGoKeepsGoroutines checks that one after the other needs no other
// goroutine.
func TestGoKeepsGoroutines(t *testing.T) {
	var c Crew
	defer c.Wait()
	seen := make(chan struct{})
	parked := func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.waiting) == 1
	}
	for range 100 {
		c.Go(func() { seen <- struct{}{} })
		<-seen
		for !parked() {
			runtime.Gosched()
		}
	}
}

// TestGoexit ends a goroutine of the crew, as one that must not go back to its
// thread does.
func TestGoexit(t *testing.T) {
	var c Crew
	c.Go(runtime.Goexit)
	c.Go(func() {})
	c.Wait()
}
