package store

import (
	"errors"
	"fmt"

	"sort"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
)

// sieveBuilder makes the sieves of the segments of a complete run, which compressed files
// have as their notes. A line may begin in one segment and end in the next, so it reads
// the segments in order, also those that are not compressed now.
type sieveBuilder struct {
	segs []*segment
	rest func() error
	b    *sieve.Builder
	done int  // segments that were read
	bad  bool // one of them is damaged: the rest has no sieves
	buf  []byte
}

func newSieveBuilder(segs []*segment, rest func() error) *sieveBuilder {
	return &sieveBuilder{segs: segs, rest: rest, b: sieve.NewBuilder()}
}

// notes returns the sieve of a segment, nil if it is damaged. It is called for segments
// in order, and may pass over some.
func (b *sieveBuilder) notes(i int) (notes []byte, err error) {
	if err := failpoint.Inject("store.sieve"); err != nil {
		return nil, err
	}
	for ; b.done <= i && !b.bad; b.done++ {
		err := b.add(b.segs[b.done])
		switch {
		case errors.Is(err, record.ErrCorrupt), errors.Is(err, record.ErrShort):
			b.bad = true // a search finds what is wrong
		case err != nil:
			return nil, fmt.Errorf("make a sieve: %w", err)
		}
		notes = b.b.Notes()
	}
	if b.bad {
		return nil, nil
	}
	return notes, nil
}

// add reads a segment.
func (b *sieveBuilder) add(seg *segment) error {
	f, err := openSegment(seg.path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, _, err := f.sizes()
	if err != nil {
		return err
	}
	for off, want := int64(len(segmentMagic)), scanRead; off < size; {
		if cap(b.buf) < want {
			b.buf = make([]byte, want)
		}
		buf := b.buf[:min(int64(want), size-off)]
		if n, err := f.ReadAt(buf, off); n < len(buf) {
			return err
		}
		n, end, err := b.b.AddRecords(buf, off)
		if err != nil || end {
			return err
		}
		if n > 0 {
			want = scanRead
		} else if off+int64(len(buf)) == size { // the rest is less than a record
			return record.ErrShort
		} else if want, err = record.Size(buf); err != nil {
			return err
		}
		off += int64(n)
		if err := b.rest(); err != nil {
			return err
		}
	}
	return nil
}

// Sift returns parts of the log that follow each other, of which the first has the event
// after a cursor, and whether each may hold what a query asks for. It returns none if
// that event is in a segment without a sieve. It uses buf, and returns it; the parts are
// valid until that is used again.
func (j *Journal) Sift(after spool.Seq, q *sieve.Query, buf []byte) ([]sieve.Part, []byte, error) {
	j.mu.Lock()
	last, segs := j.last, j.segs
	j.mu.Unlock()
	next := after + 1
	i := sort.Search(len(segs), func(i int) bool { return segs[i].first > next }) - 1
	if next == 0 || next > last || i < 0 {
		return nil, buf, nil
	}
	f, err := openSegment(segs[i].path)
	if err != nil {
		return nil, buf, nil // a read tells what is wrong
	}
	defer f.Close()
	parts, buf := f.sift(q, buf)
	j.addPoints(segs[i], parts)
	return sieve.After(parts, after), buf, nil
}

// sift returns the parts of a segment, none if it has no sieve.
func (s *segmentFile) sift(q *sieve.Query, buf []byte) ([]sieve.Part, []byte) {
	if s.blocks == nil {
		return nil, buf
	}
	notes, err := s.blocks.AppendNotes(buf[:0])
	if err != nil || len(notes) == 0 {
		return nil, notes
	}
	parts, err := sieve.Read(notes, q)
	if err != nil || len(parts) == 0 || parts[len(parts)-1].Offset+parts[len(parts)-1].Size > s.blocks.Size() {
		return nil, notes
	}
	return parts, notes
}

// learn takes positions of events from the sieve of a compressed segment, so that a
// reader which begins in its middle need not decompress what is before.
func (j *Journal) learn(seg *segment, f *segmentFile, next spool.Seq) {
	if f.blocks == nil || next <= seg.first {
		return
	}
	j.mu.Lock()
	known := seg.learned || seg.hint.off > 0 && seg.hint.seq == next
	j.mu.Unlock()
	if !known {
		parts, _ := f.sift(nil, nil)
		j.addPoints(seg, parts)
	}
}

// addPoints adds where parts begin.
func (j *Journal) addPoints(seg *segment, parts []sieve.Part) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if seg.learned {
		return
	}
	seg.learned = true
	for i := range parts {
		seg.index.add(point{seq: parts[i].Begin.Next, off: parts[i].Offset})
	}
}
