package rpc

import (
	"context"
	"slices"
	"sync"
)

// Budget limits the memory that a server holds for its peers: requests under
// way and answers that the peer has not read. Each connection has accounts. The
// first bytes of an [Account] are its own; what it holds beyond them comes from
// the budget, which all accounts share. So peers that do not read cannot stop
// one that does.
type Budget struct {
	total int64

	mu    sync.Mutex
	used  int64      // by all accounts, beyond what is their own
	queue []*Account // whose first waiter waits for the budget, in order
}

// waiter is a call of [Account.Acquire] that waits.
type waiter struct {
	n       int64
	granted chan struct{}
}

// NewBudget returns a budget of total bytes.
func NewBudget(total int64) *Budget { return &Budget{total: total} }

// Used returns how much of the budget is taken.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Crowded reports whether an account waits for the budget.
func (b *Budget) Crowded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue) > 0
}

// Account is a part of what one connection holds.
type Account struct {
	budget *Budget
	own    int64
	limit  int64

	// All guarded by budget.mu.
	held    int64
	waiting []*waiter // in order
	queued  bool      // in budget.queue
}

// Account returns an account that may hold limit bytes, of which the first own
// bytes do not count against the budget.
func (b *Budget) Account(own, limit int64) *Account {
	return &Account{budget: b, own: own, limit: max(limit, own)}
}

// Held returns how much the account holds.
func (a *Account) Held() int64 {
	a.budget.mu.Lock()
	defer a.budget.mu.Unlock()
	return a.held
}

// shared returns how much of held bytes comes from the budget.
func (a *Account) shared(held int64) int64 { return max(0, held-a.own) }

// change adds n, which may be negative. Callers hold budget.mu.
func (a *Account) change(n int64) {
	before := a.shared(a.held)
	a.held += n
	a.budget.used += a.shared(a.held) - before
}

// fits reports whether the account may take n more, and if not, whether only
// the budget is in the way. Callers hold budget.mu.
func (a *Account) fits(n int64) (ok, budget bool) {
	held := a.held + n
	switch {
	case n == 0:
		return held <= a.limit, false
	case held <= a.own:
		return true, false
	case held > a.limit && a.held > 0:
		return false, false
	}
	more := a.shared(held) - a.shared(a.held)
	ok = a.budget.used+more <= a.budget.total
	return ok, !ok
}

// Try takes n bytes if that is possible at once.
func (a *Account) Try(n int64) bool {
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if ok, _ := a.fits(n); !ok || n > 0 && a.held+n > a.own && len(b.queue) > 0 {
		return false
	}
	a.change(n)
	return true
}

// Add takes n bytes that are in memory already, even beyond the limits. A
// negative n gives bytes back.
func (a *Account) Add(n int64) {
	if n == 0 {
		return
	}
	b := a.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	a.change(n)
	if n < 0 {
		a.settle()
		b.settle()
	}
}

// Close gives everything back. The account must not be used afterwards.
func (a *Account) Close() { a.Add(-a.Held()) }

// Acquire takes n bytes, and waits until that is possible. An account that
// holds nothing, and a budget of which nothing is used, admit any number.
// Acquire of zero bytes waits until the account holds no more than its limit.
func (a *Account) Acquire(ctx context.Context, n int64) error {
	if a.Try(n) {
		return nil
	}
	b := a.budget
	w := &waiter{n: n, granted: make(chan struct{})}
	b.mu.Lock()
	a.waiting = append(a.waiting, w)
	a.settle() // something may have been given back meanwhile
	b.settle()
	b.mu.Unlock()
	select {
	case <-w.granted:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := slices.Index(a.waiting, w); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	} else { // granted meanwhile
		a.change(-n)
	}
	a.settle() // others may have waited behind it
	b.settle()
	return context.Cause(ctx)
}

// settle grants the calls of the account that now fit, in order. If the first
// that does not fit waits for the budget, the account queues for it and settle
// returns false. Callers hold budget.mu.
func (a *Account) settle() bool {
	b := a.budget
	for len(a.waiting) > 0 {
		w := a.waiting[0]
		ok, budget := a.fits(w.n)
		// Accounts that wait for the budget come first.
		first := len(b.queue) == 0 || b.queue[0] == a
		if ok && !first && w.n > 0 && a.held+w.n > a.own {
			ok, budget = false, true
		}
		if budget && b.used == 0 && first {
			ok = true
		}
		if !ok {
			if budget && !a.queued {
				a.queued = true
				b.queue = append(b.queue, a)
			}
			return !budget
		}
		a.waiting = a.waiting[1:]
		a.change(w.n)
		close(w.granted)
	}
	return true
}

// settle grants the calls that wait for the budget, in order. One that does not
// fit holds up later ones, so that it gets its turn. Callers hold b.mu.
func (b *Budget) settle() {
	for len(b.queue) > 0 {
		a := b.queue[0]
		if !a.settle() {
			return
		}
		a.queued = false
		b.queue = b.queue[1:]
	}
}
