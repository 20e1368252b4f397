package eventlog

import (
	"fmt"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// RecordTier is a tier that stores records. Its ReadRecords appends none where a
// reader has to call Read, such as at a gap.
type RecordTier interface {
	ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error)
}

// FileTier is a [RecordTier] that has records in files.
type FileTier interface {
	// OpenRecords opens the file with size bytes of records, from an event on, that
	// ReadRecords has returned. It returns where they begin, or nil if they are in no
	// file as they are.
	OpenRecords(first spool.Seq, size int) (*os.File, int64)
}

// ReadRecords is [Log.Read] for a reader that looks at the bytes: it appends the
// records of the events to dst, and returns the seq of the last, or after if there is
// none.
func (l *Log) ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error) {
	dst, last, _, err := l.readRecords(dst, after, maxBytes)
	return dst, last, err
}

// source tells where records come from.
type source struct {
	same bool // each reader of these events gets the same records, which is not so after a gap
	tier bool // the tier has them as they are
}

// readRecords is [Log.Read] for a [Relay]: it appends the records of the events to
// dst and returns the seq of the last, or after if there is none.
func (l *Log) readRecords(dst []byte, after spool.Seq, maxBytes int) (_ []byte, last spool.Seq, from source, err error) {
	l.mu.Lock()
	old := after+1 < l.first
	l.mu.Unlock()
	if tier, ok := l.tier.(RecordTier); ok && old {
		dst, next, err := tier.ReadRecords(dst, after, maxBytes)
		if err != nil {
			return dst, after, source{}, fmt.Errorf("read after %d: %w", after, err)
		}
		if next > after {
			return dst, next, source{same: true, tier: true}, nil
		}
	}
	events, err := l.Read(after, maxBytes)
	if err != nil {
		return dst, after, source{}, err
	}
	from.same = true
	for i := range events {
		if dst, err = record.Append(dst, &events[i]); err != nil {
			return dst, after, source{}, err
		}
		after = events[i].Seq
		from.same = from.same && events[i].Kind != spool.KindTruncated
	}
	return dst, after, from, nil
}
