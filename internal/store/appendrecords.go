package store

import (
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// AppendRecords appends events that another machine has logged, as their records are. It
// verifies every checksum. The seqs must follow the last one. A truncated event beyond
// the next seq tells of a gap: the events are left out here, too, so that [Journal.Read]
// tells of the same one. After an error the journal has the events before it, and may
// have none of those that were passed.
func (j *Journal) AppendRecords(b []byte) error {
	j.writeMu.Lock()
	defer j.writeMu.Unlock()
	if err := j.writable(); err != nil {
		return fmt.Errorf("append to run %s: %w", j.id, err)
	}
	for len(b) > 0 {
		n, err := j.appendSome(b)
		if err != nil {
			return fmt.Errorf("append to run %s: %w", j.id, err)
		}
		b = b[n:]
	}
	return nil
}

// appendSome appends the first of some records, with one write, and returns their size.
// The caller holds writeMu.
func (j *Journal) appendSome(b []byte) (size int, err error) {
	e, n, err := record.Decode(b)
	if err != nil {
		return 0, err
	}
	if e.Kind == spool.KindTruncated && e.Seq > j.tail.next {
		next := j.tail.next
		j.tail.next = e.Seq + 1
		if err := j.begin(); err != nil {
			j.tail.next = next
			return 0, err
		}
		return n, nil
	}
	if err := j.mayUseRoom(); err != nil {
		return 0, err
	}
	if j.tail.events && j.tail.off+int64(n) > j.store.segmentBytes {
		_ = j.begin() // as Append does
	}
	// The end of the journal moves after the write.
	end := j.tail
	var points []point
	for {
		if e.Seq != end.next {
			if size == 0 {
				return 0, fmt.Errorf("seq %d, want %d", e.Seq, end.next)
			}
			break
		}
		points = append(points, point{seq: e.Seq, off: end.off})
		end.off += int64(n)
		end.count(&e)
		if size += n; size == len(b) {
			break
		}
		if e, n, err = record.Decode(b[size:]); err != nil || end.off+int64(n) > j.store.segmentBytes {
			break // the next call returns the error
		}
	}
	if err := j.write([][]byte{b[:size]}, int64(size)); err != nil {
		return 0, err
	}
	j.tail = end
	j.mu.Lock()
	last := j.segs[len(j.segs)-1]
	for _, p := range points {
		last.index.add(p)
	}
	j.mu.Unlock()
	j.publish()
	return size, nil
}
