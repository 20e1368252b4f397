package eventlog

import (
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// RecordTier is a tier that stores records. Its ReadRecords appends none where a
// reader has to call Read, such as at a gap.
type RecordTier interface {
	ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error)
}

// ReadRecords is [Log.Read] for a reader that looks at the bytes: it appends the
// records of the events to dst, and returns the seq of the last, or after if there is
// none.
func (l *Log) ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error) {
	dst, last, _, err := l.readRecords(dst, after, maxBytes)
	return dst, last, err
}

// readRecords is [Log.Read] for a [Relay]: it appends the records of the events to
// dst and returns the seq of the last, or after if there is none. It reports whether
// each reader of these events gets the same records, which is not so after a gap.
func (l *Log) readRecords(dst []byte, after spool.Seq, maxBytes int) (_ []byte, last spool.Seq, same bool, err error) {
	l.mu.Lock()
	old := after+1 < l.first
	l.mu.Unlock()
	if tier, ok := l.tier.(RecordTier); ok && old {
		dst, next, err := tier.ReadRecords(dst, after, maxBytes)
		if err != nil {
			return dst, after, false, fmt.Errorf("read after %d: %w", after, err)
		}
		if next > after {
			return dst, next, true, nil
		}
	}
	events, err := l.Read(after, maxBytes)
	if err != nil {
		return dst, after, false, err
	}
	same = true
	for i := range events {
		if dst, err = record.Append(dst, &events[i]); err != nil {
			return dst, after, false, err
		}
		after = events[i].Seq
		same = same && events[i].Kind != spool.KindTruncated
	}
	return dst, after, same, nil
}
