package engine

import (
	"sync"

	"github.com/spool-run/spool"
)

// Account adds up what the processes of a run used, one after the other, for
// [Accountable]. The zero value is empty. It is safe for concurrent use.
type Account struct {
	mu   sync.Mutex
	sum  *spool.ProcessUse // nil before the first
	lost bool              // what one of them used is not known
}

// Add adds what a process used; nil means that it is not known.
func (a *Account) Add(p *spool.ProcessUse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case p == nil:
		a.lost = true
	case a.sum == nil:
		sum := *p
		a.sum = &sum
	default:
		a.sum.UserUs += p.UserUs
		a.sum.SystemUs += p.SystemUs
		a.sum.PeakMemory = max(a.sum.PeakMemory, p.PeakMemory)
	}
}

// Used returns the sum, or nil if it is not known.
func (a *Account) Used() *spool.ProcessUse {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sum == nil || a.lost {
		return nil
	}
	sum := *a.sum
	return &sum
}
