package spare_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/internal/spare"
)

// counted makes numbers and counts those that are not discarded.
type counted struct {
	made, alive atomic.Int64
	failAfter   int64
}

func (c *counted) make() (int64, error) {
	n := c.made.Add(1)
	if c.failAfter > 0 && n > c.failAfter {
		return 0, errors.New("no more")
	}
	c.alive.Add(1)
	return n, nil
}

func (c *counted) discard(int64) { c.alive.Add(-1) }

func (c *counted) pool(low, high int) *spare.Pool[int64] {
	return &spare.Pool[int64]{Low: low, High: high, Make: c.make, Discard: c.discard}
}

func TestFillsToHighOnceLow(t *testing.T) {
	var c counted
	p := c.pool(2, 4)
	if _, ok := p.TakeFill(); ok {
		t.Fatal("an empty pool had a spare")
	}
	p.Wait()
	if n := c.made.Load(); n != 4 {
		t.Fatalf("made %d, want 4", n)
	}
	for want := int64(4); want > 2; want-- { // the last first
		if n, ok := p.TakeFill(); !ok || n != want {
			t.Fatalf("took %d, %v; want %d", n, ok, want)
		}
	}
	p.Wait()
	if n := c.made.Load(); n != 4 {
		t.Fatalf("made %d before few were left", n)
	}
	p.Fill()
	p.Wait()
	if n := c.made.Load(); n != 6 {
		t.Fatalf("made %d, want 6", n)
	}
	p.Close()
	if n := c.alive.Load(); n != 2 { // those that were taken
		t.Errorf("%d are left, want 2", n)
	}
}

func TestTakeDoesNotFill(t *testing.T) {
	var c counted
	p := c.pool(1, 2)
	defer p.Close()
	if _, ok := p.Take(); ok {
		t.Error("an empty pool had a spare")
	}
	p.Wait()
	if n := c.made.Load(); n != 0 {
		t.Errorf("made %d", n)
	}
}

func TestNoSparesWanted(t *testing.T) {
	p := &spare.Pool[int]{}
	if _, ok := p.TakeFill(); ok {
		t.Error("a pool of none had a spare")
	}
	p.Fill()
	p.Close()
}

func TestErrorEndsFilling(t *testing.T) {
	c := counted{failAfter: 2}
	p := c.pool(0, 8)
	p.Fill()
	p.Wait()
	if n := c.made.Load(); n != 3 {
		t.Errorf("tried %d times, want 3", n)
	}
	p.Close()
	if n := c.alive.Load(); n != 0 {
		t.Errorf("%d are left", n)
	}
}

func TestGiveKeepsMax(t *testing.T) {
	var c counted
	p := c.pool(0, 1)
	p.Max = 3
	for range 5 {
		n, _ := c.make()
		p.Give(n)
	}
	if n := c.alive.Load(); n != 3 {
		t.Errorf("%d are kept, want 3", n)
	}
	p.Close()
	n, _ := c.make()
	p.Give(n)
	if n := c.alive.Load(); n != 0 {
		t.Errorf("%d are left after Close", n)
	}
}

func TestHammer(t *testing.T) {
	var c counted
	p := c.pool(2, 4)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if n, ok := p.TakeFill(); ok {
					if n%2 == 0 {
						p.Give(n)
					} else {
						c.discard(n)
					}
				}
			}
		})
	}
	wg.Wait()
	p.Close()
	if n := c.alive.Load(); n != 0 {
		t.Errorf("%d are left", n)
	}
}
