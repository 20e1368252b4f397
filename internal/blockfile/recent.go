package blockfile

import "sync"

// recentBlocks is how many blocks a process remembers: readers take parts of a
// block, one after another, and open the file anew for each.
const recentBlocks = 32

// key names a block of a file. A name may be used again for another file.
type key struct {
	name    string
	written int64
	size    int64
	block   int64
}

// recent holds the blocks that were decompressed last, or are being decompressed, for
// all readers.
var recent blocks

// blocks is a small cache that forgets what was used longest ago.
type blocks struct {
	mu    sync.Mutex
	clock uint64
	slots [recentBlocks]*entry
}

// entry is a block. Who has claimed it sets its content, once.
type entry struct {
	key     key
	done    chan struct{} // closed when content or err is set
	content []byte
	err     error

	// Of the cache:
	used    uint64
	holders int
	gone    bool // from the cache
}

// isDone reports whether a block has its content, or an error.
func (e *entry) isDone() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// get returns a block, which may not be done yet, or nil. The caller releases it.
func (b *blocks) get(k key) *entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.find(k)
}

func (b *blocks) find(k key) *entry {
	for _, e := range b.slots {
		if e != nil && e.key == k {
			b.clock++
			e.used = b.clock
			e.holders++
			return e
		}
	}
	return nil
}

// claim is get, but adds a block that is not there. It reports whether it did: then the
// caller calls set.
func (b *blocks) claim(k key) (e *entry, added bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.find(k); e != nil {
		return e, false
	}
	oldest := 0
	for i, e := range b.slots {
		if e == nil {
			oldest = i
			break
		}
		if e.used < b.slots[oldest].used {
			oldest = i
		}
	}
	if old := b.slots[oldest]; old != nil {
		b.drop(old)
	}
	b.clock++
	e = &entry{key: k, done: make(chan struct{}), used: b.clock, holders: 1}
	b.slots[oldest] = e
	return e, true
}

// set sets the content of a block that was claimed. One with an error is forgotten.
func (b *blocks) set(e *entry, content []byte, err error) {
	e.content, e.err = content, err
	close(e.done)
	if err == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.slots {
		if b.slots[i] == e {
			b.slots[i] = nil
			b.drop(e)
		}
	}
}

// release ends the use of a block.
func (b *blocks) release(e *entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.holders--
	if e.gone && e.holders == 0 {
		b.drop(e)
	}
}

// drop gives the memory of a block that is not in the cache any more to the next one,
// once nobody uses it. A block that is not done has a holder.
func (b *blocks) drop(e *entry) {
	e.gone = true
	if e.holders == 0 && e.content != nil {
		contents.Put(&e.content)
	}
}

// contents holds the memory of blocks.
var contents = sync.Pool{New: func() any { return new([]byte) }}

// newContent returns memory for a block.
func newContent(size int64) []byte {
	b := contents.Get().(*[]byte)
	if int64(cap(*b)) < size {
		return make([]byte, size)
	}
	return (*b)[:size]
}
