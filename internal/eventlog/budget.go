package eventlog

import "sync/atomic"

// maxBorrowed is how many bytes one log borrows at most: enough for a reader of
// a fast run to fall a few milliseconds behind without reading the tier. With a
// crowd it is maxBorrowedCrowd: the last followers of a crowd come late, and a
// thousand reads of the tier for the same event would make them later.
const (
	maxBorrowed      = 4 << 20
	maxBorrowedCrowd = 24 << 20
)

// Budget is memory that the logs of a host share. The few busy logs borrow from
// it.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of a number of bytes.
func NewBudget(bytes int64) *Budget {
	b := new(Budget)
	b.left.Store(bytes)
	return b
}

// borrow returns n, or zero if less than n bytes are left. A nil budget is
// empty.
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

// maxBorrowed returns how many bytes the log may borrow. Callers hold l.mu.
func (l *Log) maxBorrowed() int {
	if l.shared != nil {
		return maxBorrowedCrowd
	}
	return maxBorrowed
}
