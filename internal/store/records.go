package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/record"
)

// ReadRecords appends to dst the records of the events after a cursor as they are
// on disk, and returns the seq of the last: at least one if there is one, and
// then as many as fit in maxBytes. It does not verify checksums; the reader of
// the records does. It appends none at a gap or a damaged record: then
// [Journal.Read] tells what is wrong.
func (j *Journal) ReadRecords(dst []byte, after spool.Seq, maxBytes int) ([]byte, spool.Seq, error) {
	f, seg, at, err := j.openAt(after + 1)
	if err != nil || seg == nil {
		return dst, after, err
	}
	defer f.Close()
	dst, at.point, err = copyRecords(dst, f, at.size, at.point, maxBytes)
	if errors.Is(err, blockfile.ErrDamaged) {
		return dst, after, nil
	}
	if err != nil {
		return dst, after, fmt.Errorf("read run %s: %w", j.id, err)
	}
	j.mu.Lock()
	seg.index.add(at.point) // other readers begin here, too
	seg.hint = at.point
	j.mu.Unlock()
	return dst, at.seq - 1, nil
}

// OpenRecords opens the file with size bytes of records, from an event on, that
// ReadRecords has returned, and returns where they begin. It returns nil if they are in no
// file as they are, because the segment is compressed or gone.
func (j *Journal) OpenRecords(first spool.Seq, size int) (*os.File, int64) {
	f, seg, at, err := j.openAt(first)
	if err != nil || seg == nil {
		return nil, 0
	}
	if f.blocks != nil || at.off+int64(size) > at.size {
		f.Close()
		return nil, 0
	}
	return f.release(), at.off
}

// place is where a record begins in a segment of a size.
type place struct {
	point
	size int64
}

// openAt opens the segment with an event, and finds its record. The segment is nil if
// a reader has to call Read.
func (j *Journal) openAt(next spool.Seq) (f segmentFile, _ *segment, at place, err error) {
	j.mu.Lock()
	last, segs := j.last, j.segs
	j.mu.Unlock()
	i := sort.Search(len(segs), func(i int) bool { return segs[i].first > next }) - 1
	if next == 0 || next > last || i < 0 {
		return f, nil, at, nil
	}
	seg := segs[i]
	f, err = openSegment(seg.path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blockfile.ErrDamaged) {
		return f, nil, at, nil
	}
	if err != nil {
		return f, nil, at, fmt.Errorf("read run %s: %w", j.id, err)
	}
	found := false
	defer func() {
		if !found {
			f.Close()
		}
	}()
	j.learn(seg, &f, next)
	j.mu.Lock()
	at = place{seg.seek(next), seg.size}
	j.mu.Unlock()
	if at.size < 0 && i < len(segs)-1 { // a complete segment is as long as its file
		if at.size, _, err = f.sizes(); err != nil {
			return f, nil, at, fmt.Errorf("read run %s: %w", j.id, err)
		}
	}
	if at.size < 0 {
		return f, nil, at, nil
	}
	mark := func(p point) {
		j.mu.Lock()
		seg.index.add(p)
		j.mu.Unlock()
	}
	at.point, err = seek(f, at.size, at.point, next, mark)
	if err == nil && at.seq == next {
		at.point, err = skipMeta(f, at.size, at.point)
	}
	if found = err == nil && at.seq == next; !found {
		return f, nil, at, nil
	}
	return f, seg, at, nil
}

// skipMeta skips descriptions up to the next event or the end.
func skipMeta(f io.ReaderAt, size int64, at point) (point, error) {
	var head [record.HeaderSize]byte
	for at.off+record.HeaderSize <= size {
		if _, err := f.ReadAt(head[:], at.off); err != nil {
			return at, err
		}
		h, err := record.ParseHead(head[:])
		if err != nil || h.Place == 0 || h.Place == record.AtEnd {
			return at, err
		}
		at.off += int64(h.Size)
	}
	return at, nil
}

// copyRecords appends whole records of events from a position on, up to the next
// description, and returns where it stopped.
func copyRecords(dst []byte, f io.ReaderAt, size int64, at point, maxBytes int) ([]byte, point, error) {
	start := len(dst)
	fill := func(n int) error {
		n = int(min(int64(n), size-at.off))
		dst = slices.Grow(dst[:start], n)[:start+n]
		_, err := f.ReadAt(dst[start:], at.off)
		return err
	}
	if err := fill(max(maxBytes, minChunk)); err != nil {
		return dst[:start], at, err
	}
	if first, err := record.Size(dst[start:]); err == nil && first > len(dst)-start {
		if err := fill(first); err != nil { // at least one
			return dst[:start], at, err
		}
	}
	end := start
	for len(dst)-end >= record.HeaderSize {
		h, err := record.ParseHead(dst[end:])
		if err != nil || h.Place != 0 || h.Seq != at.seq || h.Size > len(dst)-end {
			break // Read returns the error, if there is one
		}
		at.seq++
		at.off += int64(h.Size)
		end += h.Size
	}
	return dst[:end], at, nil
}
