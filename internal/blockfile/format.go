// Package blockfile keeps a file in compressed blocks, so that it takes less
// space and can still be read at any offset.
//
//	0        magic
//	8        blocks: zstd frames, each of BlockSize bytes of the content (the last may be shorter)
//	         table: u32 size of each frame
//	         trailer, 32 bytes:
//	         0   u64  size of the content
//	         8   u32  size of a block's content
//	         12  u32  number of blocks
//	         16  u32  CRC32C of the table and of the trailer before this field
//	         20  u32  zero
//	         24       magic of the end
//
// All numbers are little-endian. The blocks have no checksums of their own: the
// content is expected to have some.
package blockfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// Magic begins a file of compressed blocks.
	Magic = "SPOOLZS1"
	// BlockSize is how many bytes of the content are in a block. A larger block
	// is compressed better; reading one byte costs reading a block.
	BlockSize = 128 << 10

	endMagic    = "SPOOLZND"
	trailerSize = 32
	// maxBlockSize bounds what a damaged file may make a reader allocate.
	maxBlockSize = 1 << 20
)

// ErrDamaged is the error of a file that is not as [Write] made it.
var ErrDamaged = errors.New("compressed file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write compresses size bytes of src into dst. After each block it calls rest,
// which may wait and whose error ends it; a nil rest does nothing.
func Write(dst io.Writer, src io.ReaderAt, size int64, rest func() error) error {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBetterCompression),
		zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(BlockSize), zstd.WithEncoderCRC(false))
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	if _, err := io.WriteString(dst, Magic); err != nil {
		return err
	}
	var table, frame []byte
	block := make([]byte, BlockSize)
	for off := int64(0); off < size; off += BlockSize {
		b := block[:min(BlockSize, size-off)]
		if n, err := src.ReadAt(b, off); n < len(b) {
			return fmt.Errorf("compress at %d: %w", off, err)
		}
		frame = enc.EncodeAll(b, frame[:0])
		if _, err := dst.Write(frame); err != nil {
			return err
		}
		table = binary.LittleEndian.AppendUint32(table, uint32(len(frame)))
		if rest != nil {
			if err := rest(); err != nil {
				return err
			}
		}
	}
	_, err = dst.Write(appendTrailer(table, size))
	return err
}

// appendTrailer appends the trailer to the table.
func appendTrailer(table []byte, size int64) []byte {
	count := len(table) / 4
	b := binary.LittleEndian.AppendUint64(table, uint64(size))
	b = binary.LittleEndian.AppendUint32(b, BlockSize)
	b = binary.LittleEndian.AppendUint32(b, uint32(count))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(b, endMagic...)
}

// layout is what the end of a file says about it.
type layout struct {
	size  int64   // of the content
	block int64   // size of a block's content
	ends  []int64 // where each frame ends in the file
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
	if string(t[24:]) != endMagic {
		return damaged("it has no end")
	}
	l.size = int64(binary.LittleEndian.Uint64(t))
	l.block = int64(binary.LittleEndian.Uint32(t[8:]))
	count := int64(binary.LittleEndian.Uint32(t[12:]))
	sum := binary.LittleEndian.Uint32(t[16:])
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
	if crc32.Checksum(end[:4*count+16], castagnoli) != sum {
		return damaged("the checksum of its table is wrong")
	}
	l.ends = make([]int64, count)
	at := int64(len(Magic))
	for i := range l.ends {
		at += int64(binary.LittleEndian.Uint32(end[4*i:]))
		l.ends[i] = at
	}
	if at != size-whole {
		return damaged("its table does not fit its blocks")
	}
	return l, nil
}

// frame returns where the frame of a block is in the file.
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
