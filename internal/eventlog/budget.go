package eventlog

import "sync/atomic"

// maxLent is how much one log borrows at most: enough that a reader of a fast
// run can fall a few milliseconds behind without going to the disk.
const (
	maxLent      = 4 << 20
	maxLentCrowd = 24 << 20
)

// Budget is memory that the logs of a host share: the few that are busy use
// it, however many there are.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of so many bytes.
func NewBudget(bytes int64) *Budget {
	b := new(Budget)
	b.left.Store(bytes)
	return b
}

// borrow returns n, or zero if there is not that much. A nil budget is empty.
func (b *Budget) borrow(n int) int {
	if b == nil {
		return 0
	}
	if b.left.Add(-int64(n)) < 0 {
		b.left.Add(int64(n))
		return 0
	}
	return n
}

func (b *Budget) giveBack(n int) {
	if b != nil {
		b.left.Add(int64(n))
	}
}
