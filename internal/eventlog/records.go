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

// ReadRecords is [Log.Read] for callers that pass the events on: it appends their
// records to dst and returns the seq of the last, or after if there is none.
func (l *Log) ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error) {
	l.mu.Lock()
	old := after+1 < l.first
	l.mu.Unlock()
	if tier, ok := l.tier.(RecordTier); ok && old {
		dst, next, err := tier.ReadRecords(dst, after, maxBytes)
		if err != nil {
			return dst, after, fmt.Errorf("read after %d: %w", after, err)
		}
		if next > after {
			return dst, next, nil
		}
	}
	events, err := l.Read(after, maxBytes)
	if err != nil {
		return dst, after, err
	}
	for i := range events {
		if dst, err = record.Append(dst, &events[i]); err != nil {
			return dst, after, err
		}
		after = events[i].Seq
	}
	return dst, after, nil
}
