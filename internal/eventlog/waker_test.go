package eventlog

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool"
)

// counter is a log that has only an end.
type counter struct {
	last   atomic.Uint64
	sealed atomic.Bool
}

func (c *counter) Last() (spool.Seq, bool) {
	sealed := c.sealed.Load()
	return spool.Seq(c.last.Load()), sealed
}

func newTestWaker() (*counter, *waker) {
	c, w := new(counter), new(waker)
	w.init(c)
	return c, w
}

// TestWakerHammer has readers and watches wait for random events while the log
// grows, the crowd comes and goes, and writers hold. A lost wake-up makes it hang.
func TestWakerHammer(t *testing.T) {
	const events, readers, watchers = 20_000, 100, 4
	c, w := newTestWaker()
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for after := spool.Seq(0); after < events; {
				ctx, cancel := context.WithCancel(context.Background())
				if rand.IntN(10) == 0 {
					cancel()
				}
				err := w.wait(ctx, after)
				cancel()
				last, sealed := c.Last()
				switch {
				case err != nil && !errors.Is(err, context.Canceled):
					t.Errorf("wait after %d: %v", after, err)
					return
				case err == nil && last <= after && !sealed:
					t.Errorf("wait after %d returned at %d", after, last)
					return
				}
				after = last
			}
		})
	}
	for range watchers {
		wg.Go(func() {
			for after := spool.Seq(0); after < events; {
				called := make(chan spool.Seq, 2) // room to notice a second call
				w.watch(after, func() {
					last, _ := c.Last()
					called <- last
				})
				last := <-called
				if last <= after {
					t.Errorf("watch after %d was called at %d", after, last)
					return
				}
				after = last
				if len(called) > 0 {
					t.Errorf("watch was called twice")
				}
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for after := spool.Seq(0); after < events; after, _ = c.Last() {
				w.hold()
				runtime.Gosched()
				w.release()
			}
		})
	}
	wg.Go(func() {
		crowded := false
		for range events {
			c.last.Add(1)
			w.notify()
			runtime.Gosched()
			if rand.IntN(200) == 0 {
				if crowded = !crowded; crowded {
					w.startCrowd()
				} else {
					w.endCrowd()
				}
			}
		}
		c.sealed.Store(true)
		w.notify()
		if crowded {
			w.endCrowd()
		}
	})
	wg.Wait()
	if w.waiting.Load() != 0 || w.watching.Load() != 0 || len(w.watches) != 0 {
		t.Errorf("left over: %d readers, %d watches", w.waiting.Load(), len(w.watches))
	}
}

// TestWakerWakesEachReader has the log grow only after all readers have seen the
// last event, with few readers and with a crowd.
func TestWakerWakesEachReader(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		c, w := newTestWaker()
		if crowded {
			w.startCrowd()
		}
		const events, readers = 30, 50
		seen := make(chan struct{})
		var wg sync.WaitGroup
		for range readers {
			wg.Go(func() {
				for after := range spool.Seq(events) {
					if err := w.wait(context.Background(), after); err != nil {
						t.Error(err)
					}
					seen <- struct{}{}
				}
			})
		}
		for range events {
			c.last.Add(1)
			w.notify()
			for range readers {
				<-seen
			}
		}
		wg.Wait()
		if crowded {
			w.endCrowd()
		}
	}
}

// TestWakerHolds checks that readers and watches sleep until the last writer that holds has
// released, and that none wakes up if nothing has happened.
func TestWakerHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newTestWaker()
		var woken atomic.Int32
		wake := func() { woken.Add(1) }
		go func() {
			if err := w.wait(t.Context(), 0); err != nil {
				t.Error(err)
			}
			wake()
		}()
		w.watch(0, wake)
		check := func(when string, n int32) {
			t.Helper()
			synctest.Wait()
			if woken.Load() != n {
				t.Errorf("%s: %d of 2 are awake, expected %d", when, woken.Load(), n)
			}
		}
		w.hold()
		w.release()
		check("nothing has happened", 0)
		w.hold()
		w.hold()
		c.last.Add(1)
		w.notify()
		w.release()
		check("one of two holds", 0)
		w.release()
		check("released", 2)
	})
}

// A reader that gives up as the leader leaves the lead to another one.
func TestWakerLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := newTestWaker()
		ctx, cancel := context.WithCancel(t.Context())
		left, woken := make(chan error), make(chan error)
		go func() { left <- w.wait(ctx, 0) }()
		synctest.Wait()
		go func() { woken <- w.wait(t.Context(), 0) }()
		synctest.Wait()
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("the leader: %v", err)
		}
		synctest.Wait()
		c.last.Add(1)
		w.notify()
		if err := <-woken; err != nil {
			t.Errorf("the other reader: %v", err)
		}
	})
}
