package record

import (
	"errors"
	"os"

	"github.com/spool-run/spool"
)

// ErrChanged is wrapped by the error of [Batch.Load] after a [Batch.Drop] if the
// records are not those that they were, because a part of the log was removed
// meanwhile. A reader that is between two messages calls [Batch.Again] and requests
// the next batch.
var ErrChanged = errors.New("the log has changed")

// Batch is the records of consecutive events on their way to a client. Its bytes
// may be shared with other readers: no one changes them.
type Batch struct {
	size   int
	bytes  []byte // nil if they are lent
	lender Lender

	again bool // the next batch begins after the cursor after
	after spool.Seq
}

// Lender has the bytes of a batch in memory that others use, too.
type Lender interface {
	// Load returns the bytes, the same each time. They are valid until Drop.
	Load() ([]byte, error)
	// Drop gives them back.
	Drop()
}

// Filed is a [Lender] whose bytes may be in a file as they are.
type Filed interface {
	// File opens that file and returns where the bytes begin, or returns nil. The
	// caller closes the file, which has the bytes even if it is removed meanwhile.
	File() (*os.File, int64)
}

// NewBatch returns a batch that has its bytes.
func NewBatch(b []byte) Batch { return Batch{size: len(b), bytes: b} }

// LentBatch returns a batch of size bytes that its lender has.
func LentBatch(l Lender, size int) Batch { return Batch{size: size, lender: l} }

// Size is the number of bytes.
func (b *Batch) Size() int { return b.size }

// Load returns the bytes, which the caller must not change. They are valid until
// Drop.
func (b *Batch) Load() ([]byte, error) {
	if b.lender == nil {
		return b.bytes, nil
	}
	return b.lender.Load()
}

// File is [Filed.File]. It returns nil if the bytes are in no file.
func (b *Batch) File() (*os.File, int64) {
	if f, ok := b.lender.(Filed); ok {
		return f.File()
	}
	return nil, 0
}

// Drop gives the bytes back: a reader that waits calls it, and then Load again.
// So it holds no memory meanwhile, if that is possible.
func (b *Batch) Drop() {
	if b.lender != nil {
		b.lender.Drop()
	}
}

// Again has the next batch begin after a cursor, not where this one ends.
func (b *Batch) Again(after spool.Seq) { b.again, b.after = true, after }
