package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/spool-run/spool/internal/blockfile"
)

// segmentFile is a segment that is open for reading. A segment that was compressed
// reads as it was before.
type segmentFile struct {
	io.ReaderAt
	file   *os.File
	blocks *blockfile.Reader // nil if the segment is not compressed
	begun  *begun
}

// openSegment opens a segment for reading, filed or not.
func openSegment(path string) (segmentFile, error) {
	f, err := openFile(path)
	if err != nil {
		return segmentFile{}, err
	}
	s, err := readSegment(f)
	if err != nil {
		s.Close()
	}
	return s, err
}

// begun is a file whose beginning has been read. What a segment has is never written
// again.
type begun struct {
	*os.File
	begin []byte
	buf   *[finalRead]byte // which begin is a part of
}

// ends are buffers for the beginnings and the ends of files.
var ends = sync.Pool{New: func() any { return new([finalRead]byte) }}

// ReadAt implements [io.ReaderAt].
func (b *begun) ReadAt(p []byte, off int64) (int, error) {
	if off >= 0 && off+int64(len(p)) <= int64(len(b.begin)) {
		return copy(p, b.begin[off:]), nil
	}
	return b.File.ReadAt(p, off)
}

// readSegment reads an open file as a segment. It reads so much at first that a short
// segment is read once.
func readSegment(f *os.File) (segmentFile, error) {
	b := &begun{File: f, buf: ends.Get().(*[finalRead]byte)}
	s := segmentFile{ReaderAt: b, file: f, begun: b}
	n, err := f.ReadAt(b.buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	b.begin = b.buf[:n]
	if n < len(blockfile.Magic) {
		return s, nil
	}
	if m := string(b.begin[:len(blockfile.Magic)]); m != blockfile.Magic && m != blockfile.FirstMagic {
		return s, nil
	}
	fi, err := f.Stat()
	if err != nil {
		return s, err
	}
	s.blocks, err = blockfile.Open(f, fi)
	s.ReaderAt = s.blocks
	return s, err
}

// Close closes the file, which was only read. It must not be used any more.
func (s segmentFile) Close() {
	s.release().Close()
}

// release ends the use of the segment and returns its file, which stays open.
func (s segmentFile) release() *os.File {
	if s.begun.buf != nil {
		s.begun.begin = nil
		ends.Put(s.begun.buf)
		s.begun.buf = nil
	}
	return s.file
}

// sizes returns the number of bytes of the segment, which is more than its file
// has if it is compressed, and describes the file. It is an error if the file belongs
// to another user, or if other users can change it.
func (s segmentFile) sizes() (int64, fs.FileInfo, error) {
	fi, err := statOwn(s.file)
	if err != nil {
		return 0, nil, err
	}
	if s.blocks != nil {
		return s.blocks.Size(), fi, nil
	}
	return fi.Size(), fi, nil
}
