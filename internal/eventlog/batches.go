package eventlog

import (
	"bytes"
	"container/list"
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

const (
	// DefaultBatches is how many bytes of records the relays of all logs share.
	DefaultBatches = 2 << 20
	// maxBatches is how many batches of one log are kept.
	maxBatches = 64
	// batchOverhead is about what a batch takes beside its records.
	batchOverhead = 256
	// maxSpare is the number of batches whose memory is kept for further ones.
	maxSpare = 8
)

// Batches are the records that the relays of logs read last. Relays of a log that
// are near each other read it once and send the same bytes; a relay that is alone
// uses one buffer again and again. A batch is in memory while a relay uses it.
// Beyond that the batches of logs with several relays are kept, up to a number of
// bytes, and the one that was used longest ago goes first.
type Batches struct {
	limit int

	mu     sync.Mutex
	loaded sync.Cond // a batch for which another relay waits was read
	kept   list.List // of *batch, in the order of their use
	bytes  int       // memory of kept
	spare  []*batch
	relays int // of all logs
}

// NewBatches returns batches that keep at most so many bytes.
func NewBatches(limit int) *Batches {
	c := &Batches{limit: limit}
	c.loaded.L = &c.mu
	return c
}

// batch is the records of consecutive events of a log. The mu of [Batches] guards
// it, but only its reader uses it while it is being read, and its records do not
// change while it has users.
type batch struct {
	log     *Log
	first   spool.Seq
	reading bool

	// Set once it was read.
	last   spool.Seq
	bytes  []byte
	source // other relays may use it if it is the same for all
	err    error

	users int
	place *list.Element // in kept; nil if the batch is not
}

// size is the memory that a batch takes.
func (b *batch) size() int { return cap(b.bytes) + batchOverhead }

// from returns the records from a seq on, which the batch has.
func (b *batch) from(seq spool.Seq) ([]byte, error) {
	records := b.bytes
	for s := b.first; s < seq; s++ {
		n, err := record.Size(records)
		if err != nil {
			return nil, err
		}
		if n > len(records) {
			return nil, record.ErrShort
		}
		records = records[n:]
	}
	return records, nil
}

// relays are the relays of one log. The mu of batches guards count and known.
type relays struct {
	once    sync.Once
	batches *Batches
	count   int
	known   []*batch // those that are kept, and those that are being read
}

// find returns the batch with an event. It may be being read.
func (r *relays) find(seq spool.Seq) *batch {
	for _, b := range r.known {
		if b.first == seq || b.first < seq && !b.reading && seq <= b.last {
			return b
		}
	}
	return nil
}

// forget removes a batch from those that other relays find, and reports whether it
// was one of them.
func (r *relays) forget(b *batch) bool {
	i := slices.Index(r.known, b)
	if i >= 0 {
		r.known = slices.Delete(r.known, i, i+1)
	}
	return i >= 0
}

// take returns the batch with the event after a cursor, and reads it if no other
// relay has. The caller gives it back.
func (c *Batches) take(l *Log, after spool.Seq) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := l.relays.find(after + 1); b != nil {
		b.users++
		for b.reading {
			c.loaded.Wait()
		}
		if b.place != nil {
			c.kept.MoveToFront(b.place)
		}
		return b
	}
	b := c.begin(l, after+1)
	if len(l.relays.known) < maxBatches || c.dropOldest(l) {
		l.relays.known = append(l.relays.known, b)
	}
	c.read(b, record.BatchBytes)
	return b
}

// takeAlone returns a batch that no other relay finds. The caller gives it back.
func (c *Batches) takeAlone(l *Log, after spool.Seq, maxBytes int) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.begin(l, after+1)
	c.read(b, maxBytes)
	return b
}

// begin returns a batch to be read, which the caller uses. Callers hold c.mu.
func (c *Batches) begin(l *Log, first spool.Seq) *batch {
	if len(c.spare) == 0 && c.bytes+record.BatchBytes > c.limit {
		c.dropUnused()
	}
	var b *batch
	if n := len(c.spare); n > 0 {
		b, c.spare = c.spare[n-1], c.spare[:n-1]
	} else {
		b = new(batch)
	}
	*b = batch{log: l, first: first, reading: true, bytes: b.bytes, users: 1}
	return b
}

// read reads a batch. Callers hold c.mu, which read releases meanwhile.
func (c *Batches) read(b *batch, maxBytes int) {
	c.mu.Unlock()
	b.bytes, b.last, b.source, b.err = b.log.readRecords(b.bytes[:0], b.first-1, maxBytes)
	c.mu.Lock()

	alone := b.log.relays.count < 2
	if !alone && len(b.bytes) < cap(b.bytes)/4 {
		large := b.bytes
		b.bytes = bytes.Clone(large)
		c.recycle(&batch{bytes: large})
	}
	b.reading = false
	if b.users > 1 {
		c.loaded.Broadcast()
	}
	if !b.log.relays.forget(b) || b.err != nil || !b.same || b.last < b.first || alone {
		return // only those that wait for it use it
	}
	b.log.relays.known = append(b.log.relays.known, b)
	b.place = c.kept.PushFront(b)
	c.bytes += b.size()
	for c.bytes > c.limit && c.kept.Len() > 1 {
		c.drop(c.kept.Back().Value.(*batch))
	}
}

// dropUnused drops the batch without users that was used longest ago. Callers hold
// c.mu.
func (c *Batches) dropUnused() {
	for e := c.kept.Back(); e != nil; e = e.Prev() {
		if b := e.Value.(*batch); b.users == 0 {
			c.drop(b)
			return
		}
	}
}

// dropOldest drops the batch of a log that was used longest ago, and reports
// whether there was one. Callers hold c.mu.
func (c *Batches) dropOldest(l *Log) bool {
	for e := c.kept.Back(); e != nil; e = e.Prev() {
		if b := e.Value.(*batch); b.log == l {
			c.drop(b)
			return true
		}
	}
	return false
}

// drop stops keeping a batch. Callers hold c.mu.
func (c *Batches) drop(b *batch) {
	c.kept.Remove(b.place)
	b.place = nil
	c.bytes -= b.size()
	b.log.relays.forget(b)
	if b.users == 0 {
		c.recycle(b)
	}
}

// give gives a batch back.
func (c *Batches) give(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.users--
	if b.users == 0 && b.place == nil {
		c.recycle(b)
	}
}

// recycle keeps the memory of a batch for a further one. Callers hold c.mu.
func (c *Batches) recycle(b *batch) {
	if cap(b.bytes) >= 2*record.BatchBytes || c.relays == 0 {
		return
	}
	if len(c.spare) == maxSpare { // the smallest goes: a batch that is read into it needs another
		least := slices.MinFunc(c.spare, func(a, b *batch) int { return cap(a.bytes) - cap(b.bytes) })
		if cap(least.bytes) < cap(b.bytes) {
			least.bytes = b.bytes
		}
		return
	}
	*b = batch{bytes: b.bytes}
	c.spare = append(c.spare, b)
}

// add counts a relay of a log.
func (c *Batches) add(l *Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relays++
	l.relays.count++
}

// remove is the inverse of add. No batches are kept for a log with one relay, and
// no memory for none.
func (c *Batches) remove(l *Log) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.relays--
	l.relays.count--
	if l.relays.count < 2 {
		for c.dropOldest(l) {
		}
	}
	if c.relays == 0 {
		c.spare = nil
	}
}
