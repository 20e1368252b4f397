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

	// removing serialises removals of names, so that the file that is given
	// back is the one that the name had.
	removing sync.Mutex

	mu           sync.Mutex
	bytes, files int64
	open         map[inode]*openInode // files of directories, see openInode
}

// inode identifies a file of this machine.
type inode struct{ dev, ino uint64 }

// openInode is a file of this machine that the guest has open. It belongs to
// the quota, because the guest may reach one file through several mounts.
type openInode struct {
	id inode
	// growing serialises what changes the size of the file, so that each
	// byte counts once.
	growing sync.Mutex

	// The quota's mu guards these.
	handles  int
	unlinked bool // the guest removed it; it counts until the last close
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

// remove calls do while no other name is removed.
func (q *Quota) remove(do func() error) error {
	if q != nil {
		q.removing.Lock()
		defer q.removing.Unlock()
	}
	return do()
}

// opened counts a handle of a file.
func (q *Quota) opened(id inode) *openInode {
	if q == nil {
		return &openInode{id: id}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.open[id]
	if f == nil {
		f = &openInode{id: id}
		if q.open == nil {
			q.open = make(map[inode]*openInode)
		}
		q.open[id] = f
	}
	f.handles++
	return f
}

// unlinked marks a removed file and reports whether it is open: its bytes then
// come back at the last close.
func (q *Quota) unlinked(id inode) bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.open[id]
	if f == nil {
		return false
	}
	f.unlinked = true
	return true
}

// closed discounts a handle of a file of that size. The last handle of a
// removed file gives back what the file took.
func (q *Quota) closed(f *openInode, size int64) {
	if q == nil {
		return
	}
	q.mu.Lock()
	f.handles--
	last := f.handles == 0
	if last {
		delete(q.open, f.id)
	}
	q.mu.Unlock()
	if last && f.unlinked {
		_ = q.add(-size, -1) // giving back never fails
	}
}
