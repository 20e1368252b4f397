package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	j.mu.Lock()
	last, segs := j.last, j.segs
	j.mu.Unlock()
	next := after + 1
	i := sort.Search(len(segs), func(i int) bool { return segs[i].first > next }) - 1
	if next == 0 || next > last || i < 0 {
		return dst, after, nil
	}
	f, err := openSegment(segs[i].path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, blockfile.ErrDamaged) {
		return dst, after, nil
	}
	if err != nil {
		return dst, after, fmt.Errorf("read run %s: %w", j.id, err)
	}
	defer f.Close()
	j.learn(segs[i], &f, next)
	j.mu.Lock()
	at, size := segs[i].seek(next), segs[i].size
	j.mu.Unlock()
	if size < 0 && i < len(segs)-1 { // a complete segment is as long as its file
		if size, _, err = f.sizes(); err != nil {
			return dst, after, fmt.Errorf("read run %s: %w", j.id, err)
		}
	}
	if size < 0 {
		return dst, after, nil
	}
	mark := func(p point) {
		j.mu.Lock()
		segs[i].index.add(p)
		j.mu.Unlock()
	}
	at, err = seek(f, size, at, next, mark)
	if err == nil && at.seq == next {
		at, err = skipMeta(f, size, at)
	}
	if err != nil || at.seq != next {
		return dst, after, nil
	}
	dst, at, err = copyRecords(dst, f, size, at, maxBytes)
	if errors.Is(err, blockfile.ErrDamaged) {
		return dst, after, nil
	}
	if err != nil {
		return dst, after, fmt.Errorf("read run %s: %w", j.id, err)
	}
	mark(at) // other readers begin here, too
	j.mu.Lock()
	segs[i].hint = at
	j.mu.Unlock()
	return dst, at.seq - 1, nil
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
