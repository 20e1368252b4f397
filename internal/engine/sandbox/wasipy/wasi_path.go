package wasipy

import (
	"strings"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

const (
	lookupFollow = 1

	openCreate    = 1
	openDirectory = 2
	openExclusive = 4
	openTruncate  = 8

	setAtime    = 1
	setAtimeNow = 2
	setMtime    = 4
	setMtimeNow = 8
)

// What new files and directories may be used for; WASI has no way to say.
const (
	newFile      = 0o644
	newDirectory = 0o755
)

// path is the path that a directory and the two arguments after it name. It is
// resolved by the file system, which knows no way out of itself.
func (g *guestCall) path(dir, n int) (string, error) {
	rel, ok := g.text(n)
	if !ok {
		return "", vfs.EFAULT
	}
	d, err := g.files.get(g.u32(dir))
	switch {
	case err != nil:
		return "", err
	case !d.dir:
		return "", vfs.ENOTDIR
	case rel == "":
		return "", vfs.ENOENT
	case len(rel) > vfs.MaxPath:
		return "", vfs.ENAMETOOLONG
	case strings.IndexByte(rel, 0) >= 0:
		return "", vfs.EINVAL
	case rel[0] == '/':
		return rel, nil
	case d.path == "/":
		return "/" + rel, nil
	}
	return d.path + "/" + rel, nil
}

func (g *guestCall) pathMkdir() uint64 {
	p, err := g.path(0, 1)
	if err == nil {
		err = g.fs.Mkdir(p, newDirectory)
	}
	return errno(err)
}

func (g *guestCall) pathRmdir() uint64 {
	p, err := g.path(0, 1)
	if err == nil {
		err = g.fs.Rmdir(p)
	}
	return errno(err)
}

func (g *guestCall) pathUnlink() uint64 {
	p, err := g.path(0, 1)
	if err == nil {
		err = g.fs.Unlink(p)
	}
	return errno(err)
}

func (g *guestCall) pathStat() uint64 {
	p, err := g.path(0, 2)
	if err != nil {
		return errno(err)
	}
	info, err := g.fs.Stat(p, g.u32(1)&lookupFollow != 0)
	if err != nil {
		return errno(err)
	}
	return g.stat(g.u32(4), info)
}

func (g *guestCall) pathSetTimes() uint64 {
	p, err := g.path(0, 2)
	if err != nil {
		return errno(err)
	}
	atime, mtime := g.times(4, 6)
	return errno(g.fs.Chtimes(p, atime, mtime))
}

// times are the two arguments from n on, if the flags say so.
func (g *guestCall) times(n, flags int) (atime, mtime int64) {
	f := g.u32(flags)
	pick := func(arg, set, now uint32) int64 {
		switch {
		case f&now != 0:
			return time.Now().UnixNano()
		case f&set != 0:
			return int64(g.args[arg])
		}
		return -1
	}
	return pick(uint32(n), setAtime, setAtimeNow), pick(uint32(n)+1, setMtime, setMtimeNow)
}

func (g *guestCall) pathReadlink() uint64 {
	p, err := g.path(0, 1)
	if err != nil {
		return errno(err)
	}
	target, err := g.fs.Readlink(p)
	if err != nil {
		return errno(err)
	}
	b := g.bytes(g.u32(3), g.u32(4))
	if b == nil {
		return uint64(vfs.EFAULT)
	}
	return wrote(g.put32(g.u32(5), uint32(copy(b, target))))
}

func (g *guestCall) pathRename() uint64 {
	from, err := g.path(0, 1)
	if err != nil {
		return errno(err)
	}
	to, err := g.path(3, 4)
	if err != nil {
		return errno(err)
	}
	return errno(g.fs.Rename(from, to))
}

func (g *guestCall) pathSymlink() uint64 {
	target, ok := g.text(0)
	if !ok {
		return uint64(vfs.EFAULT)
	}
	p, err := g.path(2, 3)
	if err == nil {
		err = g.fs.Symlink(target, p)
	}
	return errno(err)
}

func (g *guestCall) pathOpen() uint64 {
	p, err := g.path(0, 2)
	if err != nil {
		return errno(err)
	}
	if g.files.full() {
		return uint64(vfs.EMFILE)
	}
	oflags, rights, fdflags, at := g.u32(4), g.args[5], g.u32(7), g.u32(8)
	d := &descriptor{path: p, append: fdflags&flagAppend != 0}
	var flags vfs.Flags
	set := func(on bool, f vfs.Flags) {
		if on {
			flags |= f
		}
	}
	set(g.u32(1)&lookupFollow == 0, vfs.NoFollow)
	set(oflags&openCreate != 0, vfs.Create)
	set(oflags&openExclusive != 0, vfs.Exclusive)
	set(oflags&openTruncate != 0, vfs.Truncate)
	set(oflags&openDirectory != 0, vfs.Directory)
	set(d.append, vfs.Append)
	if oflags&openDirectory == 0 {
		d.write = rights&rightWrite != 0
		d.read = rights&rightRead != 0 || !d.write
		set(d.read, vfs.Read)
		set(d.write, vfs.Write)
	}
	d.file, err = g.fs.Open(p, flags, newFile)
	if err != nil {
		return errno(err)
	}
	d.dir = oflags&openDirectory != 0
	if !d.dir && !d.write {
		// A directory may be opened to be looked at, too.
		if info, err := d.file.Stat(); err == nil && info.Mode.IsDir() {
			d.dir = true
		}
	}
	return wrote(g.put32(at, g.files.add(d)))
}
