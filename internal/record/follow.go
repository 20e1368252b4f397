package record

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/spool-run/spool"
)

// Follower is a [spool.Backend] that has events as records, for a relay that
// hands them on without decoding them.
type Follower interface {
	// FollowRecords is Follow in batches. A batch is valid until the next one
	// is requested.
	FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*Batch, error]
}

// BatchBytes is how many bytes of records a batch has at most, unless it is a
// single larger event. The most that a process engine reads at once fits in it
// with its header.
const BatchBytes = 260 << 10

// batchWait is how long one read waits for the next event.
const batchWait = time.Hour

// Follow is [Follower.FollowRecords] of any backend.
func Follow(ctx context.Context, b spool.Backend, id spool.RunID, after spool.Seq) iter.Seq2[*Batch, error] {
	if f, ok := b.(Follower); ok {
		return f.FollowRecords(ctx, id, after)
	}
	var dst []byte
	var batch Batch
	return Pages(after, func(q spool.Query) (*Batch, spool.Page, error) {
		var page spool.Page
		var err error
		dst, page, err = encodePage(ctx, b, id, q, dst[:0])
		batch = NewBatch(dst)
		return &batch, page, err
	})
}

// Pages follows a log by reading page after page. The function read returns the
// records of one page; the page need not have the events.
func Pages(after spool.Seq, read func(q spool.Query) (*Batch, spool.Page, error)) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		for {
			b, page, err := read(spool.Query{After: after, MaxBytes: BatchBytes, Wait: batchWait})
			if err != nil {
				yield(nil, err)
				return
			}
			switch {
			case b.Size() > 0 && !yield(b, nil):
				return
			case b.again:
				after = b.after
			case page.End():
				return
			default:
				after = page.Next
			}
		}
	}
}

// Events decodes batches of [Follower.FollowRecords]. An event is only lent: what its
// Bytes and Data point at is used again for the next batch, and by other readers.
func Events(id spool.RunID, batches iter.Seq2[*Batch, error]) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		for batch, err := range batches {
			var b []byte
			if err == nil {
				b, err = batch.Load()
			}
			if err != nil {
				yield(spool.Event{}, err)
				return
			}
			for len(b) > 0 {
				e, n, err := Decode(b)
				if err != nil {
					yield(spool.Event{}, fmt.Errorf("run %s: %w", id, err))
					return
				}
				e.Run, b = id, b[n:]
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// Fit returns the size of the records at the beginning of b that fit into
// limit bytes, or of the first one if none does.
func Fit(b []byte, limit int64) (int, error) {
	fit := 0
	for fit < len(b) {
		n, err := Size(b[fit:])
		if err != nil {
			return 0, err
		}
		if fit+n > len(b) {
			return 0, ErrShort
		}
		if fit > 0 && int64(fit+n) > limit {
			break
		}
		fit += n
	}
	return fit, nil
}

// First returns the seq of the first of the records, and whether a reader after
// the event before it gets the same records again. That is not so after a gap.
func First(b []byte) (first spool.Seq, again bool) {
	if len(b) < HeaderSize {
		return 0, false
	}
	return spool.Seq(binary.LittleEndian.Uint64(b[8:])), b[24] != kindCodes[spool.KindTruncated]
}

// Follows reports whether an event comes after another one: it is the next, or
// it tells of a gap and lies beyond it.
func Follows(seq, after spool.Seq, gap bool) bool {
	return seq == after+1 && seq != 0 || gap && seq > after
}

// Last returns the seq of the last of the records of consecutive events, which
// come after a cursor, and whether it is the last of the log. It does not look
// at checksums.
func Last(b []byte, after spool.Seq) (last spool.Seq, closed bool, err error) {
	for last = after; len(b) > 0; {
		n, err := Size(b)
		if err != nil {
			return last, false, err
		}
		if n > len(b) {
			return last, false, ErrShort
		}
		seq := spool.Seq(binary.LittleEndian.Uint64(b[8:]))
		if closed || !Follows(seq, last, b[24] == kindCodes[spool.KindTruncated]) {
			return last, false, fmt.Errorf("event %d came after %d", seq, last)
		}
		last, closed = seq, b[24] == kindCodes[spool.KindClosed]
		b = b[n:]
	}
	return last, closed, nil
}
