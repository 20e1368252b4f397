package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sort"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Read reads between these numbers of bytes at a time. Events point into the
// buffer, so a small page must not keep a large buffer.
const (
	minChunk = 4 << 10
	maxChunk = 1 << 20
)

// Read appends to dst the events after a cursor: at least one if there is one,
// and then as many as fit in maxBytes. It verifies every checksum; the error of
// a wrong one is a [*CorruptError]. One truncated event stands for events whose
// segment is gone.
func (j *Journal) Read(dst []spool.Event, after spool.Seq, maxBytes int) ([]spool.Event, error) {
	p := page{run: j.id, events: dst, start: len(dst), left: maxBytes, next: after + 1}
	if err := j.read(&p); err != nil && p.empty() {
		return dst, err
	}
	// The events before an error are good. The next page returns the error again.
	return p.events, nil
}

func (j *Journal) read(p *page) error {
	for !p.full {
		j.mu.Lock()
		last, segs, bad, final := j.last, j.segs, j.bad, j.sealed || j.final
		j.mu.Unlock()
		if p.next == 0 || p.next > last { // a cursor at the highest seq wraps
			return bad
		}
		i := sort.Search(len(segs), func(i int) bool { return segs[i].first > p.next }) - 1
		if i < 0 {
			if !j.forgetMissing(segs, 0) {
				p.addGap(min(last, segs[0].first-1), j.store.now())
			}
			continue
		}
		upper := last
		if i+1 < len(segs) {
			upper = min(last, segs[i+1].first-1)
		}
		err := j.readSegment(p, segs[i], upper)
		switch {
		case err == nil && p.full:
		case err == nil && p.next <= upper:
			// The segment ends early, so the ones after it are missing. The
			// last segment is known to reach its upper end.
			if i == len(segs)-1 {
				return &CorruptError{Run: j.id, File: segs[i].path, Err: fmt.Errorf("event %d is gone: %w", p.next, io.ErrUnexpectedEOF)}
			}
			if !j.forgetMissing(segs, i+1) {
				p.addGap(upper, j.store.now())
			}
		case errors.Is(err, fs.ErrNotExist) && final && j.removed(segs):
			p.addGap(last, j.store.now())
		case errors.Is(err, fs.ErrNotExist) && j.forgetMissing(segs, i):
		case err != nil:
			return err
		}
	}
	return nil
}

// forgetMissing removes a segment whose file was deleted, so that its gap and
// those beside it become one. Without its last segment a run does not exist.
func (j *Journal) forgetMissing(segs []*segment, i int) bool {
	if i == len(segs)-1 {
		return false
	}
	if _, err := statSegment(segs[i].path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if k := slices.Index(j.segs, segs[i]); k >= 0 {
		j.segs = slices.Delete(slices.Clone(j.segs), k, k+1)
	}
	return true
}

// readSegment adds the events of one segment, up to seq upper at most. It
// returns without an error where the segment ends.
func (j *Journal) readSegment(p *page, seg *segment, upper spool.Seq) error {
	f, err := openSegment(seg.path)
	if err != nil {
		return openFault(err, "read", j.id, seg.path)
	}
	defer f.Close()
	j.learn(seg, &f, p.next)
	j.mu.Lock()
	at, size := seg.seek(p.next), seg.size
	j.mu.Unlock()
	if size < 0 {
		if size, _, err = f.sizes(); err != nil {
			return fmt.Errorf("read run %s: %w", j.id, err)
		}
	}
	mark := func(p point) {
		j.mu.Lock()
		seg.index.add(p)
		j.mu.Unlock()
	}
	at, err = seek(f, size, at, p.next, mark)
	if err == nil && at.seq == p.next {
		at, err = p.take(f, size, at, upper, mark)
		j.mu.Lock()
		seg.hint = at
		j.mu.Unlock()
	}
	if errors.Is(err, errTorn) { // within records that were whole before
		return &CorruptError{Run: j.id, File: seg.path, Offset: at.off, Err: err}
	}
	if err != nil {
		return fault(err, j.id, seg.path, at.off)
	}
	return nil
}

// seek reads headers from a known position to the wanted event, or to the end
// of the segment.
func seek(f io.ReaderAt, size int64, at point, want spool.Seq, mark func(point)) (point, error) {
	w := window{f: f, size: size, step: indexStep}
	marked := at.off
	for at.seq < want && at.off < size {
		b, err := w.peek(at.off, record.HeaderSize)
		if err != nil {
			return at, err
		}
		h, err := record.ParseHead(b)
		switch {
		case err != nil:
			return at, err
		case h.Place == record.AtEnd:
			return at, nil
		case h.Place == 0 && h.Seq != at.seq:
			return at, fmt.Errorf("%w: seq %d, want %d", record.ErrCorrupt, h.Seq, at.seq)
		case at.off+int64(h.Size) > size:
			return at, record.ErrShort
		}
		if at.off >= marked+indexStep {
			mark(at)
			marked = at.off
		}
		at.off += int64(h.Size)
		if h.Place == 0 {
			at.seq++
		}
	}
	return at, nil
}

// page is the result of one Read.
type page struct {
	run    spool.RunID
	events []spool.Event
	start  int       // index of the page's first event
	left   int       // bytes that may still be added
	next   spool.Seq // the event to be added next
	full   bool
}

func (p *page) empty() bool { return len(p.events) == p.start }

// fits reports whether an event of this size may be added. If not, the page is
// full.
func (p *page) fits(size int) bool {
	p.full = !p.empty() && size > p.left
	return !p.full
}

func (p *page) add(e spool.Event) {
	e.Run = p.run
	p.events = append(p.events, e)
	p.left -= e.Size()
	p.next = e.Seq + 1
}

// addGap adds the event that stands for the lost events up to a seq.
func (p *page) addGap(to spool.Seq, now time.Time) {
	data, err := json.Marshal(spool.Truncation{From: p.next, To: to})
	if err != nil { // two integers always encode
		panic(err)
	}
	if p.fits(len(data)) {
		p.add(spool.Event{Seq: to, Time: now, Kind: spool.KindTruncated, Data: data})
	}
}

// chunk returns how many bytes to read at once for the rest of the page.
func (p *page) chunk() int {
	if p.left >= maxChunk {
		return maxChunk
	}
	// Headers take space in the file but not in the page.
	return min(max(p.left, 0)*17/16+minChunk, maxChunk)
}

// take adds the events from a position on, and returns where it stopped.
func (p *page) take(f io.ReaderAt, size int64, at point, upper spool.Seq, mark func(point)) (point, error) {
	var buf []byte // the file from at.off on; events point into it, so it is never reused
	fill := func(n int) error {
		if at.off+int64(n) > size {
			return record.ErrShort
		}
		buf = make([]byte, min(int64(max(n, p.chunk())), size-at.off))
		_, err := f.ReadAt(buf, at.off)
		if errors.Is(err, io.EOF) {
			return record.ErrShort
		}
		return err
	}
	marked := at.off
	for p.next <= upper && at.off < size {
		if len(buf) < record.HeaderSize {
			if err := fill(record.HeaderSize); err != nil {
				return at, err
			}
		}
		h, err := record.ParseHead(buf)
		if err != nil {
			return at, err
		}
		switch {
		case h.Place == record.AtEnd:
			return at, nil
		case h.Place != 0:
		case h.Seq != at.seq:
			return at, fmt.Errorf("%w: seq %d, want %d", record.ErrCorrupt, h.Seq, at.seq)
		case !p.fits(h.Size - record.HeaderSize):
			return at, nil
		}
		if len(buf) < h.Size {
			if err := fill(h.Size); err != nil {
				return at, err
			}
		}
		e, n, err := record.Decode(buf)
		if err != nil {
			return at, err
		}
		if at.off >= marked+indexStep {
			mark(at)
			marked = at.off
		}
		if h.Place == 0 {
			if len(p.events) == cap(p.events) { // the next records are often of the same size
				p.events = slices.Grow(p.events, min(len(buf)/h.Size, 64+4*len(p.events)))
			}
			p.add(e)
			at.seq++
		}
		at.off += int64(n)
		buf = buf[n:]
	}
	return at, nil
}
