package rpc

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
)

func TestBudgetBoundsAllAccounts(t *testing.T) {
	b := NewBudget(100)
	a, c := b.Account(10, 80), b.Account(10, 80)
	if !a.Try(80) || a.Try(1) {
		t.Error("an account takes its limit and no more")
	}
	if c.Try(41) || !c.Try(40) || b.Used() != 100 {
		t.Errorf("the other account takes what is left of the budget and its own: %d used", b.Used())
	}
	d := b.Account(10, 80)
	if !d.Try(10) || d.Try(1) {
		t.Error("when the budget is taken, an account has what is its own")
	}
	a.Add(30)
	if b.Used() != 130 || c.Try(1) {
		t.Errorf("Add takes beyond the limits: %d used", b.Used())
	}
	a.Add(-110)
	c.Add(-40)
	d.Add(-10)
	if b.Used() != 0 || a.Held()+c.Held()+d.Held() != 0 {
		t.Errorf("%d left", b.Used())
	}
	if err := a.Acquire(t.Context(), 500); err != nil || b.Used() != 490 {
		t.Errorf("one that is too large is not taken alone: %v", err)
	}
}

func TestBudgetGrantsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		a, c, d := b.Account(10, 100), b.Account(10, 100), b.Account(10, 100)
		a.Add(110)
		var order []string
		var mu sync.Mutex
		wait := func(name string, acct *Account, n int64) {
			go func() {
				if err := acct.Acquire(t.Context(), n); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, name)
			}()
			synctest.Wait()
		}
		wait("large", c, 90)
		wait("small", d, 20)
		a.Add(-50)
		synctest.Wait()
		if len(order) != 0 {
			t.Errorf("%v overtook the large one", order)
		}
		if !d.Try(10) {
			t.Error("what is an account's own waits for nothing")
		}
		d.Add(-10)
		a.Add(-60)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 2 {
			t.Errorf("got %v", order)
		}
	})
}

func TestBudgetAcquireEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		a, c := b.Account(0, 100), b.Account(0, 100)
		a.Add(100)
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		done := make(chan struct{})
		go func() {
			err = c.Acquire(ctx, 100)
			close(done)
		}()
		synctest.Wait()
		behind := make(chan struct{})
		go func() {
			a.Add(-50)
			if err := b.Account(0, 100).Acquire(t.Context(), 50); err != nil {
				t.Error(err)
			}
			close(behind)
		}()
		synctest.Wait()
		cancel()
		<-done
		<-behind
		if !errors.Is(err, context.Canceled) || c.Held() != 0 || b.Used() != 100 {
			t.Errorf("%v; %d held, %d used", err, c.Held(), b.Used())
		}
	})
}

// TestBudgetHammer takes and gives back from many goroutines and checks that
// the budget holds and nothing is left.
func TestBudgetHammer(t *testing.T) {
	b := NewBudget(1000)
	var wg sync.WaitGroup
	for i := range 16 {
		a := b.Account(10, 300)
		for range 2 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for range 500 {
					n := r.Int64N(200)
					if r.IntN(4) == 0 {
						if !a.Try(n) {
							continue
						}
					} else if err := a.Acquire(t.Context(), n); err != nil {
						t.Error(err)
						return
					}
					if used := b.Used(); used > 1000 {
						t.Errorf("%d used", used)
					}
					a.Add(-n)
				}
			})
		}
	}
	wg.Wait()
	if b.Used() != 0 || len(b.queue) != 0 {
		t.Errorf("%d used, %d waiting", b.Used(), len(b.queue))
	}
}
