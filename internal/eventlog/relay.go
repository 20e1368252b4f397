package eventlog

import (
	"errors"
	"fmt"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Relay reads the records of a log for one client, in batches that it shares with
// other relays. It holds a batch only between Load and Drop. One goroutine uses
// it.
type Relay struct {
	log  *Log
	held *batch // nil after Drop

	// The batch that Next returned.
	first, last spool.Seq
	size        int
	records     []byte // of held
	batch       record.Batch
}

// Relay returns a relay of the log, which must be closed.
func (l *Log) Relay() *Relay {
	l.relays.once.Do(func() {
		if l.relays.batches == nil {
			l.relays.batches = NewBatches(DefaultBatches)
		}
	})
	l.relays.batches.add(l)
	return &Relay{log: l}
}

// Close ends the relay.
func (r *Relay) Close() {
	r.Drop()
	r.batch = record.Batch{}
	r.log.relays.batches.remove(r.log)
}

// Next returns the records of the events after a cursor that exist now, and the
// seq of the last. The batch is empty if there are none. It is valid until the
// next call.
func (r *Relay) Next(after spool.Seq) (*record.Batch, spool.Seq, error) {
	r.Drop()
	r.batch = record.Batch{}
	if !r.log.has(after) {
		return &r.batch, after, nil
	}
	c := r.log.relays.batches
	b := c.take(r.log, after)
	if b.err != nil || !b.same {
		// It may be the error of another relay. And a gap must not change
		// while the relay sends it.
		c.give(b)
		own, last, _, err := r.log.readRecords(nil, after, record.BatchBytes)
		if err != nil {
			return nil, after, err
		}
		r.batch = record.NewBatch(own)
		return &r.batch, last, nil
	}
	if b.last <= after {
		c.give(b)
		return &r.batch, after, nil
	}
	r.first, r.last, r.size = after+1, b.last, 0
	if err := r.hold(b); err != nil {
		return nil, after, err
	}
	r.size = len(r.records)
	r.batch = record.LentBatch(r, r.size)
	return &r.batch, r.last, nil
}

// hold makes b the batch of the relay.
func (r *Relay) hold(b *batch) error {
	r.held = b
	records, err := b.from(r.first)
	if err == nil && len(records) < r.size {
		err = record.ErrShort
	}
	if err != nil {
		r.Drop()
		return fmt.Errorf("records after %d: %w", r.first-1, err)
	}
	r.records = records
	return nil
}

// Load implements [record.Lender].
func (r *Relay) Load() ([]byte, error) {
	if r.held == nil {
		if err := r.again(); err != nil {
			return nil, err
		}
	}
	return r.records[:r.size], nil
}

// File implements [record.Filed].
func (r *Relay) File() (*os.File, int64) {
	tier, ok := r.log.tier.(FileTier)
	if !ok || r.held == nil || !r.held.tier {
		return nil, 0
	}
	return tier.OpenRecords(r.first, r.size)
}

// again takes the batch once more: one that is kept, or that it reads.
func (r *Relay) again() error {
	c := r.log.relays.batches
	has := func(b *batch) bool { return b.err == nil && b.same && b.last >= r.last }
	b := c.take(r.log, r.first-1)
	if !has(b) { // it may end earlier, because of when it was read
		c.give(b)
		b = c.takeAlone(r.log, r.first-1, max(r.size, record.BatchBytes))
	}
	if has(b) {
		return r.hold(b)
	}
	err := b.err
	c.give(b)
	return errors.Join(fmt.Errorf("records after %d: %w", r.first-1, record.ErrChanged), err)
}

// Drop implements [record.Lender].
func (r *Relay) Drop() {
	if r.held != nil {
		r.log.relays.batches.give(r.held)
		r.held, r.records = nil, nil
	}
}
