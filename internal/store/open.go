package store

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/spool-run/spool/internal/blockfile"
)

// segmentFile is a segment that is open for reading. A segment that was compressed
// reads as it was before.
type segmentFile struct {
	io.ReaderAt
	file   *os.File
	blocks *blockfile.Reader // nil if the segment is not compressed
}

// openSegment opens a segment for reading, filed or not.
func openSegment(path string) (segmentFile, error) {
	f, err := openFile(path)
	if err != nil {
		return segmentFile{}, err
	}
	s, err := readSegment(f)
	if err != nil {
		f.Close()
	}
	return s, err
}

// readSegment reads an open file as a segment.
func readSegment(f *os.File) (segmentFile, error) {
	s := segmentFile{ReaderAt: f, file: f}
	var magic [len(blockfile.Magic)]byte
	if _, err := f.ReadAt(magic[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return s, err
	}
	if m := string(magic[:]); m != blockfile.Magic && m != blockfile.FirstMagic {
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

// Close closes the file, which was only read.
func (s segmentFile) Close() { s.file.Close() }

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
