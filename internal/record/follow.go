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
	// FollowRecords is Follow in batches. Each batch is head bytes for the
	// relay to fill, and after them the records of consecutive events, at
	// least one. The relay may write into a batch; it is used again for the
	// next one.
	FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq, head int) iter.Seq2[[]byte, error]
}

// BatchBytes is how many bytes of events a batch holds at most, unless it is
// a single larger event.
const BatchBytes = 256 << 10

// batchWait is how long one read waits for the next event.
const batchWait = time.Hour

// Follow is [Follower.FollowRecords] of any backend.
func Follow(ctx context.Context, b spool.Backend, id spool.RunID, after spool.Seq, head int) iter.Seq2[[]byte, error] {
	if f, ok := b.(Follower); ok {
		return f.FollowRecords(ctx, id, after, head)
	}
	return Pages(after, head, func(dst []byte, q spool.Query) ([]byte, spool.Page, error) {
		page, err := b.Read(ctx, id, q)
		for i := 0; err == nil && i < len(page.Events); i++ {
			dst, err = Append(dst, &page.Events[i])
		}
		return dst, page, err
	})
}

// Pages follows a log by reading page after page. The function read appends
// the records of one page to dst; the page need not have the events.
func Pages(after spool.Seq, head int, read func(dst []byte, q spool.Query) ([]byte, spool.Page, error)) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		b := make([]byte, head)
		for {
			var page spool.Page
			var err error
			b, page, err = read(b[:head], spool.Query{After: after, MaxBytes: BatchBytes, Wait: batchWait})
			if err != nil {
				yield(nil, err)
				return
			}
			if len(b) > head && !yield(b, nil) || page.End() {
				return
			}
			after = page.Next
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
