package execserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// view is the part of the file system that rules allow.
//
// It looks up every path itself, element by element from the root, with an open
// directory for each: it reads symbolic links and goes on with their text, and
// checks each element against the rules. So no link leads out, neither one of
// /proc nor one that is created meanwhile. Then it acts on a name in the
// directory that it has open, without following links.
type view struct {
	rules *rules
}

func newView(r *rules) (tree, error) { return &view{r}, nil }

// maxLinks is how many symbolic links a path may have.
const maxLinks = 40

// place is a name in an open directory.
type place struct {
	dir  int // descriptor of the directory
	name string
	path string     // without symbolic links
	see  visibility // of the path
	mode uint32     // type of the file, 0 if there is none
}

func (p *place) close() { _ = unix.Close(p.dir) } // opened only to walk the path

func (p *place) missing() bool { return p.mode == 0 }

func (p *place) is(kind uint32) bool { return p.mode == kind }

// find looks up a path. The last element may be missing. The caller closes the
// place.
func (v *view) find(path string, l links) (_ *place, err error) {
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	stack := []*place{{dir: root, name: ".", path: "/", see: v.seeDirectory("/"), mode: unix.S_IFDIR}}
	defer func() {
		for _, p := range stack {
			p.close()
		}
	}()
	todo, followed := elements(path), 0
	for {
		if len(todo) == 0 { // the path ends with a directory
			p := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			return p, nil
		}
		name := todo[0]
		todo = todo[1:]
		if name == ".." {
			if len(stack) > 1 {
				stack[len(stack)-1].close()
				stack = stack[:len(stack)-1]
			}
			continue
		}
		parent := stack[len(stack)-1]
		p := &place{dir: parent.dir, name: name, path: filepath.Join(parent.path, name)}
		fd, err := v.look(p)
		if err != nil {
			return nil, err
		}
		last := len(todo) == 0
		switch {
		case p.missing():
			if !last {
				return nil, v.missingParent(p.path)
			}
		case p.is(unix.S_IFLNK) && !(last && l != followLinks):
			target, err := readlinkFD(fd)
			_ = unix.Close(fd)
			if l == refuseLinks {
				return nil, unix.ENOTDIR
			}
			if followed++; err == nil && followed > maxLinks {
				err = unix.ELOOP
			}
			if err != nil {
				return nil, err
			}
			todo = append(elements(target), todo...)
			if filepath.IsAbs(target) {
				for _, p := range stack[1:] {
					p.close()
				}
				stack = stack[:1]
			}
			continue
		case !last && !p.is(unix.S_IFDIR):
			_ = unix.Close(fd)
			return nil, unix.ENOTDIR
		case !last:
			p.dir, p.name = fd, "."
			stack = append(stack, p)
			continue
		}
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		if p.dir, err = unix.FcntlInt(uintptr(p.dir), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return nil, err
		}
		return p, nil
	}
}

// errKeptMissing is the error for a path in a missing directory that the rules
// keep missing. Codex shows a write below it as one to a read-only directory.
var errKeptMissing = fmt.Errorf("in a protected directory: %w", unix.ENOENT)

func (v *view) missingParent(path string) error {
	if one := v.rules.at(path); one != nil && one.protects {
		return errKeptMissing
	}
	return unix.ENOENT
}

// look opens the file at a place and completes the place. It returns -1 if
// nothing is visible there.
func (v *view) look(p *place) (fd int, err error) {
	switch p.see = v.rules.see(p.path); p.see {
	case sealed:
		return -1, unix.EACCES
	case hidden:
		return -1, nil
	}
	fd, err = unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return -1, nil
	}
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	p.mode = st.Mode & unix.S_IFMT
	return fd, nil
}

// seeDirectory is what the rules make of a directory that is always there.
func (v *view) seeDirectory(path string) visibility {
	if s := v.rules.see(path); s != hidden {
		return s
	}
	return passage
}

// elements splits a path. Empty elements and dots are left out.
func elements(path string) []string {
	var list []string
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			list = append(list, name)
		}
	}
	return list
}

func readlinkFD(fd int) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func (v *view) open(path string, flags int, perm uint32, l links) (*os.File, error) {
	writes := flags&(os.O_WRONLY|os.O_RDWR) != 0
	p, err := v.find(path, l)
	if writes && errors.Is(err, errKeptMissing) {
		err = unix.EROFS
	}
	if err != nil {
		return nil, err
	}
	defer p.close()
	switch {
	case p.missing() && flags&os.O_CREATE == 0:
		return nil, unix.ENOENT
	case p.is(unix.S_IFLNK): // with links not followed
		return nil, unix.ELOOP
	case writes && p.is(unix.S_IFDIR):
		return nil, unix.EISDIR
	case writes && p.see != writable && !(p.missing() && v.creatable(p)):
		return nil, unix.EROFS
	case !writes && p.see == masked:
		return nil, unix.EACCES
	}
	fd, err := unix.Openat(p.dir, p.name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// creatable reports whether a missing path may be created. A pattern denies only
// what exists: codex allows to create a file that it matches.
func (v *view) creatable(p *place) bool {
	if p.see == masked {
		one := v.rules.nearest(p.path)
		return one != nil && one.path != p.path && one.access == accessWrite
	}
	return p.see == writable
}

func (v *view) mkdir(path string, all bool, l links) error {
	switch {
	case all && l == refuseLinks:
		for i := 1; i <= len(path); i++ {
			if i < len(path) && path[i] != '/' {
				continue
			}
			if err := v.mkdirOne(path[:i], l); err != nil && !errors.Is(err, unix.EEXIST) {
				return err
			}
			if m, err := v.stat(path[:i], l); err != nil || !m.IsDirectory {
				return unix.ENOTDIR
			}
		}
		return nil
	case all:
		return mkdirAll(v, path)
	}
	return v.mkdirOne(path, l)
}

func (v *view) mkdirOne(path string, l links) error {
	if l == followLinks {
		l = keepLast
	}
	return v.create(path, l, func(dir int, name string) error { return unix.Mkdirat(dir, name, 0o777) })
}

// create makes what does not exist yet.
func (v *view) create(path string, l links, make func(dir int, name string) error) error {
	p, err := v.find(path, l)
	if err != nil {
		return err
	}
	defer p.close()
	switch {
	case !p.missing():
		return unix.EEXIST
	case !v.creatable(p):
		return unix.EROFS
	}
	return make(p.dir, p.name)
}

func (v *view) stat(path string, l links) (metadata, error) {
	p, err := v.find(path, l)
	if err != nil {
		return metadata{}, err
	}
	defer p.close()
	return v.describe(p)
}

func (v *view) describe(p *place) (metadata, error) {
	switch {
	case p.missing():
		return metadata{}, unix.ENOENT
	case p.see == masked:
		return metadata{IsDirectory: p.is(unix.S_IFDIR), IsFile: !p.is(unix.S_IFDIR)}, nil
	}
	return stat(p.dir, p.name, false)
}

func (v *view) statEntry(_ *os.File, path, name string) (metadata, error) {
	return v.stat(filepath.Join(path, name), followLinks)
}

func (v *view) info(path string, l links) (os.FileInfo, error) {
	p, err := v.find(path, l)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if p.missing() {
		return nil, unix.ENOENT
	}
	fd, err := unix.Openat(p.dir, p.name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return f.Stat()
}

func (v *view) realPath(path string) (string, error) {
	p, err := v.find(path, followLinks)
	if err != nil {
		return "", err
	}
	defer p.close()
	if p.missing() {
		return "", unix.ENOENT
	}
	return p.path, nil
}

func (v *view) readlink(path string) (string, error) {
	p, err := v.find(path, keepLast)
	if err != nil {
		return "", err
	}
	defer p.close()
	switch {
	case p.missing():
		return "", unix.ENOENT
	case p.see == masked:
		return "", unix.EACCES
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(p.dir, p.name, buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}

func (v *view) symlink(target, path string) error {
	return v.create(path, keepLast, func(dir int, name string) error { return unix.Symlinkat(target, dir, name) })
}

// remove removes nothing if the rules keep a part of a directory.
func (v *view) remove(path string, recursive bool, l links) error {
	if l == followLinks {
		l = keepLast
	}
	p, err := v.find(path, l)
	if err != nil {
		return err
	}
	defer p.close()
	isDir := p.is(unix.S_IFDIR)
	switch {
	case p.missing():
		return unix.ENOENT
	case l == refuseLinks && p.is(unix.S_IFLNK):
		return errSymlink
	case p.path == "/":
		return unix.EBUSY
	case isDir && recursive && p.see == masked:
		return unix.EACCES
	case isDir && recursive && p.see != writable && !v.empty(path):
		return unix.EROFS
	case isDir && recursive && v.keepsBelow(p.path):
		return unix.EBUSY
	case v.rules.see(filepath.Dir(p.path)) != writable && p.see != writable, v.rules.pinned(p.path) && v.rules.see(filepath.Dir(p.path)) != writable && !recursive:
		return unix.EROFS
	case v.rules.pinned(p.path):
		return unix.EBUSY
	case p.see != writable:
		return unix.EROFS
	case isDir && recursive:
		return removeTree(p)
	case isDir:
		return unix.Unlinkat(p.dir, p.name, unix.AT_REMOVEDIR)
	}
	return unix.Unlinkat(p.dir, p.name, 0)
}

// removeTree removes a directory and all in it, without following links.
func removeTree(p *place) error {
	name := p.name
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", p.dir))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return root.RemoveAll(name)
}

// empty reports whether a directory has no entries.
func (v *view) empty(path string) bool {
	dir, err := v.open(path, os.O_RDONLY|syscall.O_DIRECTORY, 0, keepLast)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(1)
	return len(names) == 0
}

// keepsBelow reports whether the rules keep something in a directory.
func (v *view) keepsBelow(path string) bool {
	if v.rules.pinnedBelow(path) {
		return true
	}
	if len(v.rules.globs) == 0 {
		return false
	}
	keeps := false
	_ = filepath.WalkDir(path, func(name string, _ os.DirEntry, err error) error {
		if keeps = err != nil || name != path && v.rules.pinned(name); keeps {
			return filepath.SkipAll
		}
		return nil
	})
	return keeps
}

func (v *view) shows(path string) bool {
	real := path
	if dir, err := v.realPath(filepath.Dir(path)); err == nil {
		real = filepath.Join(dir, filepath.Base(path))
	}
	return v.rules.see(real) != hidden
}
