package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// tail is the end of a run according to its last segment.
type tail struct {
	off    int64      // end of the last whole record; zero until the segment has its head
	next   spool.Seq  // seq of the next event
	events bool       // the segment has one
	salt   uint64     // of the segment
	info   spool.Info // the newest description
	bytes  int64      // of output so far, in all segments
	final  int        // size of the final description's record, once there is one
	sealed bool       // the footer is there too
}

// finalRead is how many bytes of a file's end are read to find the final
// description.
const finalRead = 4 << 10

// scan reads and checks the records between t.off and size. It stops before the
// first that is not whole, with errTorn if the file ends within it. It adds
// positions to found, which may be nil.
func (t *tail) scan(f io.ReaderAt, size int64, id spool.RunID, found func(point)) error {
	off := t.off
	w := window{f: f, size: size}
	if off == 0 {
		b, err := w.peek(0, len(segmentMagic))
		if err != nil {
			return err
		}
		if err := checkMagic(b); err != nil {
			return err
		}
		off = int64(len(b))
	}
	for off < size || t.off == 0 {
		if t.final > 0 {
			return t.scanFooter(&w)
		}
		b, err := w.peek(off, record.HeaderSize)
		if err != nil {
			return err
		}
		h, err := record.ParseHead(b)
		if err != nil {
			return err
		}
		if b, err = w.peek(off, h.Size); err != nil {
			return err
		}
		e, n, err := record.Decode(b)
		if err != nil {
			return err
		}
		switch {
		case (t.off == 0) != (h.Place == record.AtHead):
			return fmt.Errorf("%w: misplaced head", record.ErrCorrupt)
		case h.Place != 0:
			info, err := record.DecodeDescription(e.Data, id)
			if err != nil {
				return err
			}
			if h.Place == record.AtHead {
				t.salt = h.Salt
			} else if h.Salt != t.salt {
				return fmt.Errorf("%w: it belongs to another segment", record.ErrCorrupt)
			}
			if h.Place == record.AtEnd {
				t.final = n
			}
			t.info, t.bytes = info, info.Bytes
		case h.Seq != t.next:
			return fmt.Errorf("%w: seq %d, want %d", record.ErrCorrupt, h.Seq, t.next)
		default:
			if found != nil {
				found(point{seq: h.Seq, off: off})
			}
			t.count(&e)
		}
		off += int64(n)
		t.off = off
	}
	if t.final > 0 && !t.sealed {
		return errTorn
	}
	return nil
}

// count adds an event to the tail.
func (t *tail) count(e *spool.Event) {
	t.next = e.Seq + 1
	t.events = true
	if e.Kind == spool.KindOutput {
		t.bytes += int64(len(e.Bytes))
	}
}

func (t *tail) scanFooter(w *window) error {
	if t.sealed {
		return errors.New("bytes after the footer")
	}
	b, err := w.peek(t.off, footerSize)
	if err != nil {
		return err
	}
	n, err := parseFooter(b, t.salt)
	if err != nil {
		return err
	}
	if n != t.final {
		return errors.New("footer does not fit the final description")
	}
	t.off += footerSize
	t.sealed = true
	if t.off < w.size {
		return errors.New("bytes after the footer")
	}
	return nil
}

// readFinal reads both ends of the file of a complete run. It reports false for
// other files, which need a scan.
func (t *tail) readFinal(f io.ReaderAt, size int64, id spool.RunID) bool {
	buf := ends.Get().(*[finalRead]byte)
	defer ends.Put(buf)
	data, salt, n, ok := finalData(f, size, buf[:])
	if !ok {
		return false
	}
	info, err := record.DecodeDescription(data, id)
	if err != nil {
		return false
	}
	*t = tail{off: size, next: info.Last + 1, salt: salt, info: info, bytes: info.Bytes, final: n, sealed: true}
	return true
}

// finalData returns the final description of a complete run, the salt of its segment,
// and the size of the description's record. It reports false for other files. The
// description may be in buf.
func finalData(f io.ReaderAt, size int64, buf []byte) (data []byte, salt uint64, n int, ok bool) {
	const headSize = len(segmentMagic) + record.HeaderSize
	if size < int64(headSize+footerSize) {
		return nil, 0, 0, false
	}
	head := buf[:headSize]
	if _, err := f.ReadAt(head, 0); err != nil || checkMagic(head[:len(segmentMagic)]) != nil {
		return nil, 0, 0, false
	}
	h, err := record.ParseHead(head[len(segmentMagic):])
	if err != nil || h.Place != record.AtHead {
		return nil, 0, 0, false
	}
	end := buf[:min(int64(len(buf)), size)]
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
		return nil, 0, 0, false
	}
	n, err = parseFooter(end[len(end)-footerSize:], h.Salt)
	if err != nil || int64(n+footerSize) > size {
		return nil, 0, 0, false
	}
	if n+footerSize > len(end) {
		end = make([]byte, n+footerSize)
		if _, err := f.ReadAt(end, size-int64(len(end))); err != nil {
			return nil, 0, 0, false
		}
	}
	e, n, err := record.Decode(end[len(end)-footerSize-n:])
	if err != nil || e.Seq != 0 || uint64(e.Turn) != h.Salt {
		return nil, 0, 0, false
	}
	return e.Data, h.Salt, n, true
}

// checkMagic reports whether a file is a segment, has no head yet, or is
// something else. The death of a machine can leave zeros.
func checkMagic(b []byte) error {
	if string(b) == segmentMagic {
		return nil
	}
	if bytes.Equal(b, make([]byte, len(segmentMagic))) {
		return errTorn
	}
	return fmt.Errorf("not a segment: it begins with %q", b)
}

// scanRead is how many bytes a scan reads at a time.
const scanRead = 256 << 10

// window reads a file through a buffer that it reuses.
type window struct {
	f    io.ReaderAt
	size int64 // of the file, as far as it may be read
	step int   // to read at a time; zero means scanRead
	buf  []byte
	off  int64 // of buf in the file
}

// peek returns n bytes at off, valid until the next call. The error is
// errTorn if the file ends before.
func (w *window) peek(off int64, n int) ([]byte, error) {
	if at := off - w.off; at >= 0 && at+int64(n) <= int64(len(w.buf)) {
		return w.buf[at : at+int64(n)], nil
	}
	if off+int64(n) > w.size {
		return nil, fmt.Errorf("%w: %w", errTorn, record.ErrShort)
	}
	step := w.step
	if step == 0 {
		step = scanRead
	}
	want := int(min(int64(max(n, step)), w.size-off))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	w.buf, w.off = w.buf[:want], off
	if _, err := w.f.ReadAt(w.buf, off); err != nil {
		w.buf = w.buf[:0]
		if errors.Is(err, io.EOF) { // the file has shrunk since its size was read
			return nil, fmt.Errorf("%w: %w", errTorn, record.ErrShort)
		}
		return nil, err
	}
	return w.buf[:n], nil
}
