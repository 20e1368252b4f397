package wasipy

import (
	"encoding/binary"
	"errors"
	"io"
	"math"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// The types of files in WASI.
const (
	typeUnknown   = 0
	typeCharacter = 2
	typeDirectory = 3
	typeRegular   = 4
	typeSymlink   = 7
)

func fileType(m vfs.Mode) byte {
	switch m & vfs.TypeMask {
	case vfs.TypeDir:
		return typeDirectory
	case vfs.TypeFile:
		return typeRegular
	case vfs.TypeSymlink:
		return typeSymlink
	case vfs.TypeChar:
		return typeCharacter
	}
	return typeUnknown
}

const (
	allRights   = 1<<30 - 1
	flagAppend  = 1
	rightRead   = 1 << 1
	rightWrite  = 1 << 6
	maxVectors  = 1024
	prestatRoot = "/"
)

func (g *guestCall) fdClose() uint64    { return errno(g.files.remove(g.u32(0))) }
func (g *guestCall) fdRenumber() uint64 { return errno(g.files.renumber(g.u32(0), g.u32(1))) }

func (g *guestCall) fdSync() uint64 {
	d, err := g.files.get(g.u32(0))
	if err == nil && d.file != nil {
		err = d.file.Sync()
	}
	return errno(err)
}

func (g *guestCall) fdStat() uint64 {
	d, err := g.files.get(g.u32(0))
	if err != nil {
		return errno(err)
	}
	b := g.bytes(g.u32(1), 24)
	if b == nil {
		return uint64(vfs.EFAULT)
	}
	clear(b)
	switch {
	case d.dir:
		b[0] = typeDirectory
	case d.file == nil:
		// With the right to seek, so that it is not taken for a terminal.
		b[0] = typeCharacter
	default:
		b[0] = typeRegular
	}
	if d.append {
		b[2] = flagAppend
	}
	binary.LittleEndian.PutUint64(b[8:], allRights)
	binary.LittleEndian.PutUint64(b[16:], allRights)
	return 0
}

func (g *guestCall) fdSetFlags() uint64 {
	d, err := g.files.get(g.u32(0))
	if err == nil {
		d.append = g.u32(1)&flagAppend != 0
	}
	return errno(err)
}

// stat gives the guest a description, and remembers what has no place in it.
func (g *guestCall) stat(at uint32, info vfs.Info) uint64 {
	b := g.bytes(at, 64)
	if b == nil {
		return uint64(vfs.EFAULT)
	}
	g.lastMode = info.Mode
	le := binary.LittleEndian
	le.PutUint64(b[0:], info.Dev)
	le.PutUint64(b[8:], info.Ino)
	le.PutUint64(b[16:], uint64(fileType(info.Mode)))
	le.PutUint64(b[24:], uint64(info.Nlink))
	le.PutUint64(b[32:], uint64(info.Size))
	le.PutUint64(b[40:], uint64(info.Atime))
	le.PutUint64(b[48:], uint64(info.Mtime))
	le.PutUint64(b[56:], uint64(info.Ctime))
	return 0
}

func (g *guestCall) fdFileStat() uint64 {
	d, err := g.files.get(g.u32(0))
	if err != nil {
		return errno(err)
	}
	info := vfs.Info{Mode: vfs.TypeChar | 0o600, Nlink: 1, Ino: uint64(g.u32(0)) + 1}
	at := g.u32(1)
	switch {
	case d.file != nil:
		info, err = d.file.Stat()
	case d.dir:
		info, err = g.fs.Stat(d.path, true)
	}
	if err != nil {
		return errno(err)
	}
	return g.stat(at, info)
}

// regular returns the file of a descriptor that has one.
func (g *guestCall) regular(n int) (*descriptor, error) {
	d, err := g.files.get(g.u32(n))
	switch {
	case err != nil:
		return nil, err
	case d.dir:
		return nil, vfs.EISDIR
	case d.file == nil:
		return nil, vfs.ESPIPE
	}
	return d, nil
}

func (g *guestCall) fdSetSize() uint64 {
	d, err := g.regular(0)
	switch {
	case err != nil:
		return errno(err)
	case !d.write || g.args[1] > math.MaxInt64:
		return uint64(vfs.EINVAL)
	}
	return errno(d.file.Truncate(int64(g.args[1])))
}

func (g *guestCall) fdSetTimes() uint64 {
	d, err := g.files.get(g.u32(0))
	if err != nil {
		return errno(err)
	}
	if d.path == "" {
		return uint64(vfs.EINVAL)
	}
	atime, mtime := g.times(1, 3)
	return errno(g.fs.Chtimes(d.path, atime, mtime))
}

func (g *guestCall) fdPrestat() uint64 {
	if g.u32(0) != root {
		return uint64(vfs.EBADF)
	}
	return wrote(g.put32(g.u32(1), 0) && g.put32(g.u32(1)+4, uint32(len(prestatRoot))))
}

func (g *guestCall) fdPrestatName() uint64 {
	if g.u32(0) != root {
		return uint64(vfs.EBADF)
	}
	b := g.bytes(g.u32(1), g.u32(2))
	if len(b) < len(prestatRoot) {
		return uint64(vfs.EFAULT)
	}
	copy(b, prestatRoot)
	return 0
}

// vectors calls do for the pieces of memory that two arguments describe, until
// one is not done in full. It returns what was done.
func (g *guestCall) vectors(list, n uint32, do func(p []byte) (int, error)) (uint32, error) {
	if n > maxVectors {
		return 0, vfs.EINVAL
	}
	total := uint32(0)
	for k := range n {
		at := list + 8*k
		p := g.bytes(g.get32(at), g.get32(at+4))
		if g.bytes(at, 8) == nil || p == nil {
			return total, vfs.EFAULT
		}
		for len(p) > 0 {
			part := p[:min(len(p), vfs.MaxIO)]
			done, err := do(part)
			total += uint32(done)
			if err != nil {
				if total > 0 {
					return total, nil // the rest fails next time
				}
				return 0, err
			}
			if done < len(part) {
				return total, nil
			}
			p = p[done:]
		}
	}
	return total, nil
}

// transfer ends a call that moved bytes.
func (g *guestCall) transfer(at, total uint32, err error) uint64 {
	if err != nil {
		return errno(err)
	}
	return wrote(g.put32(at, total))
}

func (g *guestCall) fdRead() uint64 {
	fd, list, n, at := g.u32(0), g.u32(1), g.u32(2), g.u32(3)
	d, err := g.files.get(fd)
	switch {
	case err != nil:
		return errno(err)
	case d.dir:
		return uint64(vfs.EISDIR)
	case !d.read:
		return uint64(vfs.EBADF)
	case d.file == nil:
		return g.readInput(list, n, at)
	}
	total, err := g.vectors(list, n, func(p []byte) (int, error) {
		n, err := d.file.ReadAt(p, d.offset)
		d.offset += int64(n)
		return n, err
	})
	return g.transfer(at, total, err)
}

// readInput reads standard input: what there is, but at least something.
func (g *guestCall) readInput(list, n, at uint32) uint64 {
	g.flush()
	if g.exceptionIsDue() {
		return uint64(vfs.EINTR)
	}
	began := g.now()
	for k := range min(n, maxVectors) {
		p := g.bytes(g.get32(list+8*k), g.get32(list+8*k+4))
		if len(p) == 0 {
			continue
		}
		got, err := g.link.Read(p[:min(len(p), vfs.MaxIO)])
		g.waited += g.now() - began
		g.heed(err)
		switch {
		case errors.Is(err, errInterrupt):
			g.raise()
			return uint64(vfs.EINTR)
		case errors.Is(err, io.EOF):
			got = 0
		case err != nil:
			return uint64(vfs.EIO)
		}
		return wrote(g.put32(at, uint32(got)))
	}
	return wrote(g.put32(at, 0))
}

func (g *guestCall) fdWrite() uint64 {
	fd, list, n, at := g.u32(0), g.u32(1), g.u32(2), g.u32(3)
	d, err := g.files.get(fd)
	switch {
	case err != nil:
		return errno(err)
	case d.dir || !d.write:
		return uint64(vfs.EBADF)
	}
	do := func(p []byte) (int, error) {
		n, err := d.file.WriteAt(p, d.offset)
		d.offset += int64(n)
		return n, err
	}
	switch {
	case d.file == nil:
		do = func(p []byte) (int, error) {
			g.out.write(g.now(), guest.Stream(fd), p)
			return len(p), nil
		}
	case d.append:
		do = func(p []byte) (int, error) {
			n, end, err := d.file.Append(p)
			if n > 0 {
				d.offset = end
			}
			return n, err
		}
	}
	total, err := g.vectors(list, n, do)
	g.safepoint()
	return g.transfer(at, total, err)
}

func (g *guestCall) fdPread() uint64 {
	return g.transferAt(func(d *descriptor) bool { return d.read }, vfs.File.ReadAt)
}

func (g *guestCall) fdPwrite() uint64 {
	return g.transferAt(func(d *descriptor) bool { return d.write }, vfs.File.WriteAt)
}

// transferAt reads or writes at an offset, without moving that of the
// descriptor.
func (g *guestCall) transferAt(may func(*descriptor) bool, do func(vfs.File, []byte, int64) (int, error)) uint64 {
	d, err := g.regular(0)
	if err == nil && !may(d) {
		err = vfs.EBADF
	}
	off, at := int64(g.args[3]), g.u32(4)
	if err == nil && off < 0 {
		err = vfs.EINVAL
	}
	if err != nil {
		return errno(err)
	}
	total, err := g.vectors(g.u32(1), g.u32(2), func(p []byte) (int, error) {
		n, err := do(d.file, p, off)
		off += int64(n)
		return n, err
	})
	return g.transfer(at, total, err)
}

func (g *guestCall) fdSeek() uint64 {
	d, err := g.regular(0)
	if err != nil {
		if errors.Is(err, vfs.EISDIR) {
			return wrote(g.put64(g.u32(3), 0)) // rewinddir
		}
		return errno(err)
	}
	base := int64(0)
	delta, at := int64(g.args[1]), g.u32(3)
	switch g.u32(2) {
	case 0:
	case 1:
		base = d.offset
	case 2:
		info, err := d.file.Stat()
		if err != nil {
			return errno(err)
		}
		base = info.Size
	default:
		return uint64(vfs.EINVAL)
	}
	if delta < 0 && base+delta < 0 || delta > 0 && base > math.MaxInt64-delta {
		return uint64(vfs.EINVAL)
	}
	d.offset = base + delta
	return wrote(g.put64(at, uint64(d.offset)))
}

func (g *guestCall) fdTell() uint64 {
	d, err := g.regular(0)
	if err != nil {
		return errno(err)
	}
	return wrote(g.put64(g.u32(1), uint64(d.offset)))
}

const direntSize = 24

// fdReadDir lists a directory from a cookie on, which is the number of the
// next entry.
func (g *guestCall) fdReadDir() uint64 {
	d, err := g.files.get(g.u32(0))
	if err != nil {
		return errno(err)
	}
	if !d.dir {
		return uint64(vfs.ENOTDIR)
	}
	buf, cookie, at := g.bytes(g.u32(1), g.u32(2)), g.args[3], g.u32(4)
	if buf == nil {
		return uint64(vfs.EFAULT)
	}
	if cookie == 0 || d.entries == nil {
		d.entries, err = g.fs.ReadDir(d.path)
		if err != nil {
			return errno(err)
		}
	}
	used := 0
	for n := cookie; n < uint64(len(d.entries)) && used < len(buf); n++ {
		e := d.entries[n]
		var head [direntSize]byte
		le := binary.LittleEndian
		le.PutUint64(head[0:], n+1)
		le.PutUint64(head[8:], max(e.Ino, 1))
		le.PutUint32(head[16:], uint32(len(e.Name)))
		head[20] = fileType(e.Type)
		// What is cut off tells the guest that there is more.
		used += copy(buf[used:], head[:])
		used += copy(buf[used:], e.Name)
	}
	return wrote(g.put32(at, uint32(used)))
}
