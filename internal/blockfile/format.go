// Package blockfile keeps a file in compressed blocks, so that it takes less
// space and can still be read at any offset.
//
//	0        magic
//	8        blocks, each of BlockSize bytes of the content (the last may be shorter)
//	         notes: what the writer knows of the content
//	         table: u32 for each block: its size; the highest bit is set if it is
//	         a MinLZ or an S2 block, and not if it is a zstd frame
//	         trailer, 32 bytes:
//	         0   u64  size of the content
//	         8   u32  size of a block's content
//	         12  u32  number of blocks
//	         16  u32  size of the notes
//	         20  u32  CRC32C of the table and of the trailer before this field
//	         24       magic of the end
//
// All numbers are little-endian. The blocks and the notes have no checksums of their
// own: they are expected to have some.
//
// A MinLZ block is decompressed up to twice as fast as a zstd frame, which takes a quarter
// less space. Text that is compressed well, as most logs are, is in MinLZ blocks. Earlier
// files have S2 blocks in their place, which say themselves that they are.
//
// Files of the first version have another magic, no notes, zstd frames alone, and in the
// trailer the CRC32C at 16 and zero at 20.
package blockfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/minio/minlz"
)

const (
	// Magic begins a file of compressed blocks.
	Magic = "SPOOLZS2"
	// FirstMagic begins such a file of the first version.
	FirstMagic = "SPOOLZS1"
	// BlockSize is how many bytes of the content are in a block. A larger block
	// is compressed better; reading one byte costs reading a block.
	BlockSize = 128 << 10

	endMagic      = "SPOOLZN2"
	firstEndMagic = "SPOOLZND"
	trailerSize   = 32
	lzBit         = 1 << 31 // of a size in the table
	// lzGain is the factor by which the blocks of a file are compressed, if there
	// are MinLZ blocks. With less, zstd keeps a log of text below a fifth of its size.
	lzGain = 6
	// lzSlack is by how much the blocks so far may be larger than that.
	lzSlack = 32 << 10
	// maxBlockSize bounds what a damaged file may make a reader allocate.
	maxBlockSize = 1 << 20
)

// ErrDamaged is the error of a file that is not as [Write] made it.
var ErrDamaged = errors.New("compressed file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Options are what [Write] calls. A nil function does nothing.
type Options struct {
	// Rest is called after each block. It may wait, and its error ends the
	// writing.
	Rest func() error
	// Notes is called after the last block, for what is to be kept beside the
	// content.
	Notes func() ([]byte, error)
}

// Write compresses size bytes of src into dst.
func Write(dst io.Writer, src io.ReaderAt, size int64, o Options) error {
	enc, err := newEncoder()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(dst, Magic); err != nil {
		return err
	}
	var table []byte
	block := make([]byte, BlockSize)
	for off := int64(0); off < size; off += BlockSize {
		b := block[:min(BlockSize, size-off)]
		if n, err := src.ReadAt(b, off); n < len(b) {
			return fmt.Errorf("compress at %d: %w", off, err)
		}
		frame, bit, err := enc.encode(b)
		if err != nil {
			return err
		}
		if _, err := dst.Write(frame); err != nil {
			return err
		}
		table = binary.LittleEndian.AppendUint32(table, uint32(len(frame))|bit)
		if o.Rest != nil {
			if err := o.Rest(); err != nil {
				return err
			}
		}
	}
	var notes []byte
	if o.Notes != nil {
		if notes, err = o.Notes(); err != nil {
			return err
		}
	}
	if _, err := dst.Write(notes); err != nil {
		return err
	}
	_, err = dst.Write(appendTrailer(table, size, len(notes)))
	return err
}

// encoder compresses blocks, one after another.
type encoder struct {
	zstd    *zstd.Encoder
	frame   []byte
	in, out int // bytes so far
}

func newEncoder() (*encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(BlockSize), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return &encoder{zstd: z, frame: make([]byte, minlz.MaxEncodedLen(BlockSize))}, nil
}

// encode compresses a block, and returns the bit of the table that tells how.
func (e *encoder) encode(b []byte) (frame []byte, bit uint32, err error) {
	e.in += len(b)
	if frame, err = minlz.Encode(e.frame[:cap(e.frame)], b, minlz.LevelBalanced); err != nil {
		return nil, 0, fmt.Errorf("compress: %w", err)
	}
	if bit = lzBit; e.out+len(frame) > e.in/lzGain+lzSlack {
		e.frame = e.zstd.EncodeAll(b, e.frame[:0])
		frame, bit = e.frame, 0
	}
	e.out += len(frame)
	return frame, bit, nil
}

// appendTrailer appends the trailer to the table.
func appendTrailer(table []byte, size int64, notes int) []byte {
	count := len(table) / 4
	b := binary.LittleEndian.AppendUint64(table, uint64(size))
	b = binary.LittleEndian.AppendUint32(b, BlockSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(count))
	b = binary.LittleEndian.AppendUint32(b, uint32(notes))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return append(b, endMagic...)
}

// layout is what the end of a file says about it.
type layout struct {
	size  int64   // of the content
	block int64   // size of a block's content
	notes int64   // size of the notes, which follow the last block
	ends  []int64 // where each block ends in the file
	lz    []bool  // which of them are no zstd frames
}

// readLayout reads the end of a file of this size.
func readLayout(f io.ReaderAt, size int64) (layout, error) {
	var l layout
	damaged := func(what string) (layout, error) { return layout{}, fmt.Errorf("%w: %s", ErrDamaged, what) }
	if size < int64(len(Magic))+trailerSize {
		return damaged("it is too short")
	}
	// The tables of most files are short, so one read takes both.
	end := make([]byte, min(size-int64(len(Magic)), 4<<10))
	if err := readFull(f, end, size-int64(len(end))); err != nil {
		return l, err
	}
	t := end[len(end)-trailerSize:]
	checked := 20 // bytes of the trailer in its checksum
	switch string(t[24:]) {
	case endMagic:
		l.notes = int64(binary.LittleEndian.Uint32(t[16:]))
	case firstEndMagic:
		checked = 16
	default:
		return damaged("it has no end")
	}
	l.size = int64(binary.LittleEndian.Uint64(t))
	l.block = int64(binary.LittleEndian.Uint32(t[8:]))
	count := int64(binary.LittleEndian.Uint32(t[12:]))
	sum := binary.LittleEndian.Uint32(t[checked:])
	whole := 4*count + trailerSize
	if l.size < 0 || l.block <= 0 || l.block > maxBlockSize || count != l.size/l.block+min(l.size%l.block, 1) || whole > size-int64(len(Magic)) {
		return damaged("its trailer contradicts itself")
	}
	if whole > int64(len(end)) {
		end = make([]byte, whole)
		if err := readFull(f, end, size-whole); err != nil {
			return l, err
		}
	}
	end = end[int64(len(end))-whole:]
	if crc32.Checksum(end[:4*count+int64(checked)], castagnoli) != sum {
		return damaged("the checksum of its table is wrong")
	}
	l.ends, l.lz = make([]int64, count), make([]bool, count)
	at := int64(len(Magic))
	for i := range l.ends {
		n := binary.LittleEndian.Uint32(end[4*i:])
		at += int64(n &^ lzBit)
		l.ends[i], l.lz[i] = at, n&lzBit != 0
	}
	if at+l.notes != size-whole {
		return damaged("its table does not fit its blocks")
	}
	return l, nil
}

// frame returns where a block is in the file.
func (l *layout) frame(i int64) (from, to int64) {
	if i == 0 {
		return int64(len(Magic)), l.ends[0]
	}
	return l.ends[i-1], l.ends[i]
}

// contentSize returns the size of a block's content.
func (l *layout) contentSize(i int64) int64 { return min(l.block, l.size-i*l.block) }

// readFull reads all of b at an offset.
func readFull(f io.ReaderAt, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: %w", ErrDamaged, io.ErrUnexpectedEOF)
	}
	return err
}
