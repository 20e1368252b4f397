package vfs

import "sync"

// Defaults of a [Quota].
const (
	DefaultQuotaBytes = 64 << 20
	DefaultQuotaFiles = 16384
)

// Quota bounds what a guest may put into a file system: the bytes of its
// files, and how many files, directories and links there are. Any number of
// layers may share one. A nil Quota bounds nothing.
type Quota struct {
	maxBytes, maxFiles int64

	mu           sync.Mutex
	bytes, files int64
}

// NewQuota returns a quota; zeros mean the defaults, negative numbers no
// bound.
func NewQuota(bytes, files int64) *Quota {
	if bytes == 0 {
		bytes = DefaultQuotaBytes
	}
	if files == 0 {
		files = DefaultQuotaFiles
	}
	return &Quota{maxBytes: bytes, maxFiles: files}
}

// Used returns how much of the quota is taken.
func (q *Quota) Used() (bytes, files int64) {
	if q == nil {
		return 0, 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.files
}

// add takes from the quota, or gives back what is negative. Taking fails with
// ENOSPC, and then nothing is taken.
func (q *Quota) add(bytes, files int64) error {
	if q == nil {
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if bytes > 0 && q.maxBytes >= 0 && bytes > q.maxBytes-q.bytes {
		return ENOSPC
	}
	if files > 0 && q.maxFiles >= 0 && files > q.maxFiles-q.files {
		return ENOSPC
	}
	// What was there before the guest came may be removed by it, and gives
	// it no more than it was promised.
	q.bytes = max(0, q.bytes+bytes)
	q.files = max(0, q.files+files)
	return nil
}

// upTo takes as much of n bytes as there is and returns that.
func (q *Quota) upTo(n int64) int64 {
	if q == nil || n <= 0 {
		return n
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.maxBytes >= 0 {
		n = min(n, max(0, q.maxBytes-q.bytes))
	}
	q.bytes += n
	return n
}
