package blockfile

import "sync"

// recentBlocks is how many blocks a process remembers: readers take parts of a
// block, one after another, and open the file anew for each.
const recentBlocks = 8

// key names a block of a file. A name may be used again for another file.
type key struct {
	name    string
	written int64
	size    int64
	block   int64
}

// recent holds the blocks that were decompressed last, for all readers.
var recent blocks

// blocks is a small cache that forgets what was used longest ago.
type blocks struct {
	mu    sync.Mutex
	clock uint64
	slots [recentBlocks]slot
}

type slot struct {
	key     key
	content []byte // never changed
	used    uint64
}

// get returns a block, or nil.
func (b *blocks) get(k key) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.slots {
		if s := &b.slots[i]; s.content != nil && s.key == k {
			b.clock++
			s.used = b.clock
			return s.content
		}
	}
	return nil
}

// put remembers a block.
func (b *blocks) put(k key, content []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	oldest := &b.slots[0]
	for i := range b.slots {
		s := &b.slots[i]
		if s.key == k {
			oldest = s
			break
		}
		if s.used < oldest.used {
			oldest = s
		}
	}
	b.clock++
	*oldest = slot{k, content, b.clock}
}
