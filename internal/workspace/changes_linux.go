package workspace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

const bufferSize = 32 << 10

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// opaque marks a directory in the upper one that replaces that of the base, and
// origin what was copied there from the base.
const (
	opaque = "user.overlay.opaque"
	origin = "user.overlay.origin"
)

// change is a difference between the upper directory and the base.
type change struct {
	path  string // relative to the base; "." for itself
	op    string
	upper unix.Stat_t // what is there now; zero if it was deleted
	base  unix.Stat_t // what was there; zero if it was added
	top   string      // the path of the added, deleted or replaced directory that it is in; empty for none
	lost  bool        // a directory of the base that the base has not any more
}

// public returns the change as others see it.
func (c *change) public() spool.Change {
	p := spool.Change{Path: c.path, Op: c.op}
	if !utf8.ValidString(c.path) {
		p.Base64 = []byte(c.path)
	}
	if c.op != Deleted {
		p.Type, p.Mode = typeOf(&c.upper), modeOf(&c.upper)
		if p.Type == typeFile {
			p.Size = c.upper.Size
		}
	}
	if c.op != Added {
		p.OldMode = modeOf(&c.base)
		if old := typeOf(&c.base); c.op == Deleted {
			p.Type = old
		} else if old != p.Type {
			p.OldType = old
		}
	}
	return p
}

// The types of files.
const (
	typeFile      = "file"
	typeDirectory = "directory"
	typeSymlink   = "symlink"
	typeOther     = "other"
)

func typeOf(st *unix.Stat_t) string {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return typeFile
	case unix.S_IFDIR:
		return typeDirectory
	case unix.S_IFLNK:
		return typeSymlink
	}
	return typeOther
}

func modeOf(st *unix.Stat_t) string {
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return ""
	}
	return fmt.Sprintf("%04o", st.Mode&permissions)
}

// permissions are the bits of modes that are compared and applied. Others, such as
// that of programs which become another user, a run does not set.
const permissions = 0o777

func isDir(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFDIR }

// isWhiteout reports whether a file stands for one that was deleted.
func isWhiteout(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == 0 }

// differ finds the changes of an overlay.
type differ struct {
	after string // only those of later paths are wanted; empty for all
	list  []change
}

// openChanges returns the changes of an overlay and its base, which the caller closes.
func (w *Workspace) openChanges() (base int, list []change, err error) {
	return w.openChangesAfter("")
}

// openChangesAfter is openChanges for the changes of the paths after one.
func (w *Workspace) openChangesAfter(after string) (base int, list []change, err error) {
	if base, err = w.openBase(); err != nil {
		return -1, nil, err
	}
	if list, err = w.overlayChanges(base, after); err != nil {
		return -1, nil, errors.Join(err, unix.Close(base))
	}
	return base, list, nil
}

// overlayChanges lists the differences of the upper directory from an open base,
// sorted by path, after one.
func (w *Workspace) overlayChanges(base int, after string) ([]change, error) {
	upper, err := openDir(unix.AT_FDCWD, filepath.Join(w.dir, upperDir))
	if err != nil {
		return nil, fmt.Errorf("open the upper directory: %w", err)
	}
	defer unix.Close(upper)
	d := &differ{after: after}
	root := change{path: ".", op: Modified}
	if err := errors.Join(unix.Fstat(upper, &root.upper), unix.Fstat(base, &root.base)); err != nil {
		return nil, fmt.Errorf("stat workspace: %w", err)
	}
	if !sameAttributes(&root.upper, &root.base) {
		d.list = append(d.list, root)
	}
	if err := d.dir(upper, base, "", ""); err != nil {
		return nil, err
	}
	if after != "" {
		d.list = slices.DeleteFunc(d.list, func(c change) bool { return c.path <= after })
	}
	slices.SortFunc(d.list, func(a, b change) int { return cmp.Compare(a.path, b.path) })
	return d.list, nil
}

// sameAttributes reports whether permissions are equal, and the owners of what is no
// directory.
func sameAttributes(a, b *unix.Stat_t) bool {
	return a.Mode&permissions == b.Mode&permissions && (isDir(a) || a.Uid == b.Uid && a.Gid == b.Gid)
}

// dir compares a directory with that of the base, which is -1 if there is none.
func (d *differ) dir(upper, base int, path, top string) error {
	names, err := readNames(upper)
	if err != nil {
		return err
	}
	for _, name := range names {
		c := change{path: path + name, top: top}
		if d.after != "" && d.after >= c.path+"0" { // 0 follows /: all that is below it comes before
			continue
		}
		if err := unix.Fstatat(upper, name, &c.upper, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if err == unix.ENOENT { // a live run deleted it
				continue
			}
			return fmt.Errorf("stat %s: %w", c.path, err)
		}
		there := false
		if base >= 0 {
			switch err := unix.Fstatat(base, name, &c.base, unix.AT_SYMLINK_NOFOLLOW); err {
			case nil:
				there = true
			case unix.ENOENT, unix.ENOTDIR:
				c.base = unix.Stat_t{}
			default:
				return fmt.Errorf("stat %s: %w", c.path, err)
			}
		}
		if err := d.entry(c, there, upper, base, name); err != nil {
			return err
		}
	}
	return nil
}

// entry adds the changes of one name in a directory and below it.
func (d *differ) entry(c change, there bool, upper, base int, name string) error {
	switch {
	case isWhiteout(&c.upper):
		if there {
			c.upper = unix.Stat_t{}
			return d.deleted(c, base, name)
		}
		return nil
	case isDir(&c.upper):
		return d.directory(c, there, upper, base, name)
	case !there:
		c.op = Added
	default:
		c.op = Modified
		if c.upper.Mode&unix.S_IFMT == c.base.Mode&unix.S_IFMT {
			equal, err := sameFile(upper, base, name, &c)
			if err != nil || equal {
				return err
			}
		}
		if isDir(&c.base) {
			if err := d.deletedIn(c.path, c.path, base, name); err != nil {
				return err
			}
		}
	}
	d.list = append(d.list, c)
	return nil
}

// directory adds the changes of a directory and below it.
func (d *differ) directory(c change, there bool, upper, base int, name string) error {
	sub, err := openDir(upper, name)
	if err != nil {
		if err == unix.ENOENT {
			return nil
		}
		return fmt.Errorf("open %s: %w", c.path, err)
	}
	defer unix.Close(sub)
	var value [1]byte
	n, err := unix.Fgetxattr(sub, opaque, value[:])
	replaced := err == nil && n == 1 && value[0] == 'y'
	if !there || !isDir(&c.base) {
		c.op = Added
		if there {
			c.op = Modified
		} else if !replaced {
			_, err := unix.Fgetxattr(sub, origin, nil)
			c.lost = err == nil
		}
		d.list = append(d.list, c)
		return d.dir(sub, -1, c.path+"/", cmp.Or(c.top, c.path))
	}
	if !sameAttributes(&c.upper, &c.base) {
		c.op = Modified
		d.list = append(d.list, c)
	}
	old, err := openDir(base, name)
	if err != nil {
		return fmt.Errorf("open %s in the base: %w", c.path, err)
	}
	defer unix.Close(old)
	if err := d.dir(sub, old, c.path+"/", ""); err != nil || !replaced {
		return err
	}
	// What the upper directory does not have is not seen any more.
	names, err := readNames(old)
	if err != nil {
		return err
	}
	for _, name := range names {
		gone := change{path: c.path + "/" + name}
		if unix.Fstatat(sub, name, &gone.upper, unix.AT_SYMLINK_NOFOLLOW) == nil {
			continue
		}
		if err := unix.Fstatat(old, name, &gone.base, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // it is gone from the base, too
		}
		if err := d.deleted(gone, old, name); err != nil {
			return err
		}
	}
	return nil
}

// deleted adds what was deleted, with all that was in it.
func (d *differ) deleted(c change, base int, name string) error {
	c.op = Deleted
	d.list = append(d.list, c)
	if !isDir(&c.base) {
		return nil
	}
	return d.deletedIn(c.path, cmp.Or(c.top, c.path), base, name)
}

// deletedIn adds what was in a directory of the base that was deleted or replaced.
func (d *differ) deletedIn(path, top string, base int, name string) error {
	fd, err := openDir(base, name)
	if err != nil {
		return fmt.Errorf("open %s in the base: %w", path, err)
	}
	defer unix.Close(fd)
	names, err := readNames(fd)
	if err != nil {
		return err
	}
	for _, name := range names {
		c := change{path: path + "/" + name, top: top}
		if err := unix.Fstatat(fd, name, &c.base, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue
		}
		if err := d.deleted(c, fd, name); err != nil {
			return err
		}
	}
	return nil
}

// sameFile reports whether two files of one type are equal: their permissions,
// owners and contents.
func sameFile(upper, base int, name string, c *change) (bool, error) {
	a, b := &c.upper, &c.base
	switch a.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		x, err := readLink(upper, name)
		if err != nil {
			return false, fmt.Errorf("read link %s: %w", c.path, err)
		}
		y, err := readLink(base, name)
		if err != nil {
			return false, fmt.Errorf("read link %s: %w", c.path, err)
		}
		return x == y, nil
	case unix.S_IFREG:
		if a.Size != b.Size || !sameAttributes(a, b) {
			return false, nil
		}
		return sameContent(upper, base, name, c.path)
	}
	return sameAttributes(a, b) && a.Rdev == b.Rdev, nil
}

// sameContent compares files of equal size.
func sameContent(upper, base int, name, path string) (bool, error) {
	x, err := openFile(upper, name)
	if err != nil {
		if err == unix.EACCES { // the run took the permission away
			return false, nil
		}
		return false, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(x)
	y, err := openFile(base, name)
	if err != nil {
		if err == unix.EACCES {
			return false, nil
		}
		return false, fmt.Errorf("open %s in the base: %w", path, err)
	}
	defer unix.Close(y)
	p, q := buffers.Get().(*[bufferSize]byte), buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(p)
	defer buffers.Put(q)
	for {
		n, err := readFull(x, p[:])
		if err != nil {
			return false, fmt.Errorf("read %s: %w", path, err)
		}
		m, err := readFull(y, q[:])
		if err != nil {
			return false, fmt.Errorf("read %s in the base: %w", path, err)
		}
		if !bytes.Equal(p[:n], q[:m]) {
			return false, nil
		}
		if n < len(p) {
			return true, nil
		}
	}
}

// openFile opens a file for reading, but nothing that it would wait for.
func openFile(at int, name string) (int, error) {
	for {
		fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// readFull reads until a buffer is full or the file ends.
func readFull(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		m, err := unix.Read(fd, b[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

func readLink(at int, name string) (string, error) {
	b := make([]byte, 4096)
	n, err := unix.Readlinkat(at, name, b)
	if err != nil {
		return "", err
	}
	return string(b[:n]), nil
}
