package vfs

import (
	"encoding/binary"
	"math"
)

// The form in which file calls cross from a guest's process to the one that
// has the files, for [Server] and [Client] and implementations in other
// languages. Numbers are little-endian; a string is its length as u32 and its
// bytes; "rest" is all that is left of the message.
//
//	call          request after the u8 of the op          answer after a u16 errno of 0
//	OpStat        u8 follow, string path                  info
//	OpOpen        u16 flags, u32 perm, string path        u32 handle
//	OpReadDir     string path                             u32 count, count × (u64 ino, u32 type, string name)
//	OpMkdir       u32 perm, string path
//	OpUnlink      string path
//	OpRmdir       string path
//	OpRename      string from, string to
//	OpSymlink     string target, string path
//	OpReadlink    string path                             rest target
//	OpChmod       u32 perm, string path
//	OpChtimes     i64 atime, i64 mtime, string path
//	OpCreate      u32 perm, string path
//	OpResize      u64 size, string path
//	OpFstat       u32 handle                              info
//	OpRead        u32 handle, u64 offset, u32 length      rest bytes; none at the end of the file
//	OpWrite       u32 handle, u64 offset, rest bytes      u32 written
//	OpAppend      u32 handle, rest bytes                  u32 written, u64 end
//	OpTruncate    u32 handle, u64 size
//	OpSync        u32 handle
//	OpClose       u32 handle
//
// info is u64 dev, u64 ino, u32 mode, u32 nlink, i64 size, i64 atime, i64
// mtime, i64 ctime: 56 bytes. An answer with another errno has nothing after
// it.
//
// OpCreate makes an empty file, and fails if the path exists; OpResize changes
// the size of a file by its path. They save a guest that does this before it
// opens a file two calls, and fail as opening it would if too many files are
// open.
const (
	OpStat byte = 1 + iota
	OpOpen
	OpReadDir
	OpMkdir
	OpUnlink
	OpRmdir
	OpRename
	OpSymlink
	OpReadlink
	OpChmod
	OpChtimes
	OpCreate
	OpResize
	OpFstat
	OpRead
	OpWrite
	OpAppend
	OpTruncate
	OpSync
	OpClose
)

// MaxIO bounds the bytes of one read or write. A longer read returns less; a
// longer write is malformed, and clients divide it.
const MaxIO = 1 << 20

// MaxMessage bounds a request: a longer one is malformed.
const MaxMessage = MaxIO + 64

// reader takes a message apart. After the first error all that it returns is
// zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// offset is a u64 that is no larger than files can be.
func (r *reader) offset() int64 {
	n := r.u64()
	if n > math.MaxInt64 {
		r.bad = true
		return 0
	}
	return int64(n)
}

func (r *reader) str() string { return string(r.take(int(min(r.u32(), math.MaxInt32)))) }

func (r *reader) rest() []byte { return r.take(len(r.b)) }

func (r *reader) info() Info {
	return Info{
		Dev: r.u64(), Ino: r.u64(), Mode: Mode(r.u32()), Nlink: r.u32(), Size: int64(r.u64()),
		Atime: int64(r.u64()), Mtime: int64(r.u64()), Ctime: int64(r.u64()),
	}
}

var le = binary.LittleEndian

func appendStr(b []byte, s string) []byte {
	return append(le.AppendUint32(b, uint32(len(s))), s...)
}

func appendInfo(b []byte, i Info) []byte {
	b = le.AppendUint64(b, i.Dev)
	b = le.AppendUint64(b, i.Ino)
	b = le.AppendUint32(b, uint32(i.Mode))
	b = le.AppendUint32(b, i.Nlink)
	b = le.AppendUint64(b, uint64(i.Size))
	b = le.AppendUint64(b, uint64(i.Atime))
	b = le.AppendUint64(b, uint64(i.Mtime))
	return le.AppendUint64(b, uint64(i.Ctime))
}
