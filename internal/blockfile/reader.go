package blockfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/minio/minlz"
)

// Reader reads the content of a file. It is safe for concurrent use.
type Reader struct {
	f      *os.File
	layout layout
	key    key // of its block 0
}

// Open reads the table of a file, which the caller closes after the last use of
// the reader.
func Open(f *os.File, fi fs.FileInfo) (*Reader, error) {
	l, err := readLayout(f, fi.Size())
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", f.Name(), err)
	}
	return &Reader{f: f, layout: l, key: key{name: f.Name(), written: fi.ModTime().UnixNano(), size: fi.Size()}}, nil
}

// Size returns the size of the content.
func (r *Reader) Size() int64 { return r.layout.size }

// AppendNotes appends the notes to dst.
func (r *Reader) AppendNotes(dst []byte) ([]byte, error) {
	from := int64(len(Magic))
	if n := len(r.layout.ends); n > 0 {
		from = r.layout.ends[n-1]
	}
	had := len(dst)
	dst = slices.Grow(dst, int(r.layout.notes))[:had+int(r.layout.notes)]
	if err := readFull(r.f, dst[had:], from); err != nil {
		return dst[:had], err
	}
	return dst, nil
}

// ReadAt reads the content, as [io.ReaderAt].
func (r *Reader) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 || off >= r.layout.size {
		return 0, io.EOF
	}
	if max := r.layout.size - off; int64(len(p)) > max {
		p, err = p[:max], io.EOF
	}
	if failed := r.read(p, off); failed != nil {
		return 0, failed
	}
	return len(p), err
}

// read fills p. Blocks that p takes as a whole are decompressed into it, on
// several processors if there are several; of the blocks at its ends, which the
// next read probably wants again, it takes a part.
func (r *Reader) read(p []byte, off int64) error {
	block := r.layout.block
	first, last := off/block, (off+int64(len(p))-1)/block
	var parts []part
	for i := first; i <= last; i++ {
		from, to := max(i*block, off), min(i*block+r.layout.contentSize(i), off+int64(len(p)))
		parts = append(parts, part{block: i, skip: from - i*block, dst: p[from-off : to-off : to-off]})
	}
	if r.follows(first, off) {
		r.ahead(first + 1)
		err := r.fillAll(parts)
		r.ahead(last + 1)
		return err
	}
	workers := min(len(parts), runtime.GOMAXPROCS(0), maxWorkers)
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := 1; w < workers; w++ {
		wg.Go(func() { errs[w] = r.fillEvery(parts, w, workers) })
	}
	errs[0] = r.fillEvery(parts, 0, workers)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// maxWorkers bounds how many blocks one read decompresses at a time.
const maxWorkers = 4

// part is what a read wants of a block.
type part struct {
	block int64
	skip  int64
	dst   []byte
}

// fillEvery fills every n-th part.
func (r *Reader) fillEvery(parts []part, from, n int) error {
	for i := from; i < len(parts); i += n {
		if err := r.fill(parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// fillAll fills parts while another goroutine decompresses blocks. Those with which that
// is busy it fills last, and until they are done it helps with those that follow.
func (r *Reader) fillAll(parts []part) error {
	type busy struct {
		e *entry
		p part
	}
	var others []busy
	var failed error
	for _, p := range parts {
		k := r.key
		k.block = p.block
		e := r.own(k)
		var err error
		switch {
		case e == nil:
			err = r.fill(p)
		case e.isDone():
			err = r.take(e, p)
		default:
			others = append(others, busy{e, p})
		}
		if failed == nil {
			failed = err
		}
	}
	for _, b := range others {
		for !b.e.isDone() && r.help() {
		}
		if err := r.take(b.e, b.p); failed == nil {
			failed = err
		}
	}
	return failed
}

// follows reports whether a read probably goes on where another one ended: within a
// block that was read, or where blocks are read ahead.
func (r *Reader) follows(first, off int64) bool {
	if off == 0 {
		return false
	}
	k := r.key
	k.block = first
	e := recent.get(k)
	if e != nil {
		recent.release(e)
	}
	return e != nil || r.isAhead(first)
}

func (r *Reader) fill(p part) error {
	size := r.layout.contentSize(p.block)
	k := r.key
	k.block = p.block
	if int64(len(p.dst)) == size {
		e := recent.get(k)
		if e == nil {
			return r.decode(p.block, p.dst)
		}
		return r.take(e, p)
	}
	e, added := recent.claim(k)
	if added {
		content := newContent(size)
		recent.set(e, content, r.decode(p.block, content))
	}
	return r.take(e, p)
}

// take copies what a read wants of a block, and releases that.
func (r *Reader) take(e *entry, p part) error {
	defer recent.release(e)
	<-e.done
	if e.err != nil {
		return e.err
	}
	copy(p.dst, e.content[p.skip:])
	return nil
}

// decode decompresses a block into dst, which has its size.
func (r *Reader) decode(block int64, dst []byte) error {
	frame, err := r.readFrame(block)
	if err != nil {
		return err
	}
	defer frames.Put(frame)
	return r.expand(block, *frame, dst)
}

// readFrame reads a block as it is in the file, into a buffer of frames.
func (r *Reader) readFrame(block int64) (*[]byte, error) {
	from, to := r.layout.frame(block)
	if to-from > 2*maxBlockSize {
		return nil, fmt.Errorf("%w: block %d is too long", ErrDamaged, block)
	}
	buf := frames.Get().(*[]byte)
	if int64(cap(*buf)) < to-from {
		*buf = make([]byte, to-from)
	}
	*buf = (*buf)[:to-from]
	if err := readFull(r.f, *buf, from); err != nil {
		frames.Put(buf)
		return nil, err
	}
	return buf, nil
}

// expand decompresses a block that was read into dst, which has its size.
func (r *Reader) expand(block int64, frame, dst []byte) error {
	got, err := r.decompress(block, frame, dst)
	if err != nil {
		return fmt.Errorf("%w: block %d: %w", ErrDamaged, block, err)
	}
	if len(got) != len(dst) {
		return fmt.Errorf("%w: block %d has %d bytes, not %d", ErrDamaged, block, len(got), len(dst))
	}
	return nil
}

func (r *Reader) decompress(block int64, frame, dst []byte) ([]byte, error) {
	if r.layout.lz[block] {
		if n, err := minlz.DecodedLen(frame); err != nil || n != len(dst) {
			return nil, fmt.Errorf("it claims %d bytes: %w", n, minlz.ErrCorrupt)
		}
		return minlz.Decode(dst, frame)
	}
	dec, err := decoder()
	if err != nil {
		return nil, err
	}
	return dec.DecodeAll(frame, dst[:0:len(dst)])
}

// frames holds buffers of compressed blocks.
var frames = sync.Pool{New: func() any { return new([]byte) }}

// decoder is made at its first use and serves the whole process: it holds
// memory only while it decompresses.
var decoder = sync.OnceValues(func() (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(maxWorkers), zstd.WithDecoderMaxMemory(maxBlockSize),
		zstd.WithDecodeAllCapLimit(true))
})
