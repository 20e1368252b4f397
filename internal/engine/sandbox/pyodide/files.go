package pyodide

import (
	"encoding/binary"
	"encoding/json"
	"math"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// files serves the file operations of one interpreter from its file system.
type files struct {
	fs   vfs.FS
	max  int // open at once
	open map[uint32]vfs.File
	last uint32
}

func newFiles(fs vfs.FS, limit int) *files {
	return &files{fs: fs, max: limit, open: make(map[uint32]vfs.File)}
}

// close closes what the interpreter left open.
func (f *files) close() {
	for h, file := range f.open {
		_ = file.Close() // the script has ended
		delete(f.open, h)
	}
}

// serve does what a frame asks for and appends the reply to b.
func (f *files) serve(fr frame, b []byte) ([]byte, error) {
	switch fr.op {
	case opRename, opSymlink, opChtimes:
		return f.two(fr, b)
	}
	if len(fr.payload) < 16 {
		return b, ErrProtocol
	}
	a := arguments{
		first:  binary.LittleEndian.Uint32(fr.payload),
		second: binary.LittleEndian.Uint32(fr.payload[4:]),
		number: math.Float64frombits(binary.LittleEndian.Uint64(fr.payload[8:])),
		rest:   fr.payload[16:],
	}
	switch fr.op {
	case opClose, opRead, opWrite, opAppend, opTruncate, opFstat:
		return f.handle(fr.op, a, b)
	}
	return f.path(fr, a, b)
}

// arguments are those of most operations.
type arguments struct {
	first, second uint32
	number        float64
	rest          []byte
}

// offset returns the number as a position in a file.
func (a arguments) offset() (int64, error) {
	if !(a.number >= 0 && a.number <= 1<<53) {
		return 0, vfs.EINVAL
	}
	return int64(a.number), nil
}

func (f *files) path(fr frame, a arguments, b []byte) ([]byte, error) {
	path := string(a.rest)
	if len(path) > vfs.MaxPath {
		return b, vfs.ENAMETOOLONG
	}
	switch fr.op {
	case opStat:
		info, err := f.fs.Stat(path, false)
		return appendInfo(b, info), err
	case opOpen:
		return f.openFile(path, a.first, b)
	case opCreate:
		file, err := f.fs.Open(path, vfs.Write|vfs.Create|vfs.Exclusive, vfs.Mode(a.first)&vfs.PermMask)
		if err != nil {
			return b, err
		}
		return b, file.Close()
	case opReadDir:
		entries, err := f.fs.ReadDir(path)
		for _, e := range entries {
			b = binary.LittleEndian.AppendUint32(b, uint32(e.Type&vfs.TypeMask))
			b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Name)))
			b = append(b, e.Name...)
		}
		return b, err
	case opMkdir:
		return b, f.fs.Mkdir(path, vfs.Mode(a.first)&vfs.PermMask)
	case opUnlink:
		return b, f.fs.Unlink(path)
	case opRmdir:
		return b, f.fs.Rmdir(path)
	case opReadlink:
		target, err := f.fs.Readlink(path)
		return append(b, target...), err
	case opChmod:
		return b, f.fs.Chmod(path, vfs.Mode(a.first)&vfs.PermMask)
	case opResize:
		size, err := a.offset()
		if err != nil {
			return b, err
		}
		file, err := f.fs.Open(path, vfs.Write, 0)
		if err != nil {
			return b, err
		}
		err = file.Truncate(size)
		if cerr := file.Close(); err == nil {
			err = cerr
		}
		return b, err
	}
	return b, ErrProtocol
}

// The flags of open that get here, as Emscripten numbers them.
const (
	flagAccess = 3
	flagWrite  = 1
	flagBoth   = 2
	flagAppend = 1024
)

func (f *files) openFile(path string, flags uint32, b []byte) ([]byte, error) {
	if len(f.open) >= f.max {
		return b, vfs.EMFILE
	}
	how := vfs.Read
	switch flags & flagAccess {
	case flagWrite:
		how = vfs.Write
	case flagBoth:
		how = vfs.Read | vfs.Write
	}
	if flags&flagAppend != 0 {
		how |= vfs.Append
	}
	file, err := f.fs.Open(path, how, 0)
	if err != nil {
		return b, err
	}
	for f.last++; f.open[f.last] != nil; f.last++ { // it comes round only after 4 G opens
	}
	f.open[f.last] = file
	return binary.LittleEndian.AppendUint32(b, f.last), nil
}

func (f *files) handle(what op, a arguments, b []byte) ([]byte, error) {
	file := f.open[a.first]
	if file == nil {
		return b, vfs.EBADF
	}
	offset, err := a.offset()
	if err != nil {
		return b, err
	}
	switch what {
	case opRead:
		n := int(min(a.second, maxFrame))
		at := len(b)
		b = append(b, make([]byte, n)...)
		n, err = file.ReadAt(b[at:], offset)
		return b[:at+n], err
	case opWrite:
		n, err := file.WriteAt(a.rest, offset)
		return binary.LittleEndian.AppendUint32(b, uint32(n)), err
	case opAppend:
		n, _, err := file.Append(a.rest)
		return binary.LittleEndian.AppendUint32(b, uint32(n)), err
	case opTruncate:
		return b, file.Truncate(offset)
	case opFstat:
		info, err := file.Stat()
		return appendInfo(b, info), err
	}
	delete(f.open, a.first) // opClose
	return b, file.Close()
}

// two serves operations with two strings.
func (f *files) two(fr frame, b []byte) ([]byte, error) {
	if len(fr.payload) < 4 {
		return b, ErrProtocol
	}
	n, rest := binary.LittleEndian.Uint32(fr.payload), fr.payload[4:]
	if uint64(n) > uint64(len(rest)) {
		return b, ErrProtocol
	}
	first, second := string(rest[:n]), string(rest[n:])
	if len(first) > vfs.MaxPath || len(second) > vfs.MaxPath {
		return b, vfs.ENAMETOOLONG
	}
	switch fr.op {
	case opRename:
		return b, f.fs.Rename(first, second)
	case opSymlink:
		return b, f.fs.Symlink(first, second)
	}
	var ms [2]float64 // opChtimes; negative means unchanged
	if err := json.Unmarshal([]byte(second), &ms); err != nil {
		return b, ErrProtocol
	}
	return b, f.fs.Chtimes(first, nanoseconds(ms[0]), nanoseconds(ms[1]))
}

func nanoseconds(ms float64) int64 {
	if !(ms >= 0 && ms < math.MaxInt64/1e6) {
		return -1
	}
	return int64(ms * 1e6)
}

// appendInfo appends a description as eight floating-point numbers, which
// JavaScript reads fastest.
func appendInfo(b []byte, i vfs.Info) []byte {
	for _, v := range [...]float64{
		float64(i.Dev), float64(i.Ino), float64(i.Mode), float64(i.Nlink), float64(i.Size),
		float64(i.Atime) / 1e6, float64(i.Mtime) / 1e6, float64(i.Ctime) / 1e6,
	} {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}
