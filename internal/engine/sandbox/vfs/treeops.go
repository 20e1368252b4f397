package vfs

import "errors"

// Stat implements [FS].
func (t *Tree) Stat(path string, follow bool) (Info, error) {
	p, err := t.resolve(path, follow)
	if err != nil {
		return Info{}, settle(err)
	}
	if p.info != nil {
		p.info.Dev = p.mount.dev
		return *p.info, nil
	}
	info, err := p.mount.layer.lstat(p.path)
	if err != nil {
		return Info{}, settle(err)
	}
	if p.slash && !info.Mode.IsDir() {
		return Info{}, ENOTDIR
	}
	info.Dev = p.mount.dev
	return info, nil
}

// Open implements [FS].
func (t *Tree) Open(path string, flags Flags, perm Mode) (File, error) {
	if flags&Append != 0 {
		flags |= Write
	}
	if flags&(Read|Write) == 0 {
		if flags&Directory == 0 {
			return nil, EINVAL
		}
		flags |= Read
	}
	follow := flags&NoFollow == 0 && flags&(Create|Exclusive) != Create|Exclusive
	p, err := t.resolve(path, follow)
	if err != nil {
		return nil, settle(err)
	}
	if p.slash && flags&Create != 0 {
		return nil, EISDIR
	}
	f, err := p.mount.layer.open(p.path, flags, perm)
	if err != nil {
		return nil, settle(err)
	}
	return file{f, p.mount.dev}, nil
}

// file settles the errors of an open file, and tells its device.
type file struct {
	File
	dev uint64
}

func (f file) Stat() (Info, error) {
	info, err := f.File.Stat()
	info.Dev = f.dev
	return info, settle(err)
}

// ReadDir implements [FS].
func (t *Tree) ReadDir(path string) ([]Entry, error) {
	p, err := t.resolve(path, true)
	if err != nil {
		return nil, settle(err)
	}
	entries, err := p.mount.layer.readdir(p.path)
	return entries, settle(err)
}

// Mkdir implements [FS].
func (t *Tree) Mkdir(path string, perm Mode) error {
	p, err := t.resolveName(path)
	if err != nil {
		return settle(err)
	}
	if p.dots != "" || p.path == "" {
		return EEXIST
	}
	return settle(p.mount.layer.mkdir(p.path, perm))
}

// Unlink implements [FS].
func (t *Tree) Unlink(path string) error {
	p, err := t.resolveName(path)
	switch {
	case err != nil:
		return settle(err)
	case p.dots != "":
		return EISDIR
	case t.covers(p):
		return EBUSY
	}
	return settle(p.mount.layer.unlink(p.path))
}

// Rmdir implements [FS].
func (t *Tree) Rmdir(path string) error {
	p, err := t.resolveName(path)
	switch {
	case err != nil:
		return settle(err)
	case p.dots == ".":
		return EINVAL
	case p.dots == "..":
		return ENOTEMPTY
	case t.covers(p):
		return EBUSY
	}
	return settle(p.mount.layer.rmdir(p.path))
}

// Rename implements [FS].
func (t *Tree) Rename(from, to string) error {
	p, err := t.resolveName(from)
	if err != nil {
		return settle(err)
	}
	if dir, _ := split(p.path); p.path != "" {
		if _, err := p.mount.layer.lstat(dir); err != nil {
			return settle(err)
		}
	}
	q, err := t.resolveName(to)
	if err != nil {
		return settle(err)
	}
	if p.dots != "" || q.dots != "" || t.covers(p) || t.covers(q) {
		return EBUSY
	}
	info, err := p.mount.layer.lstat(p.path)
	switch {
	case err != nil:
		return settle(err)
	case (p.slash || q.slash) && !info.Mode.IsDir():
		return ENOTDIR
	case p.mount != q.mount:
		return EXDEV
	}
	return settle(p.mount.layer.rename(p.path, q.path))
}

// Symlink implements [FS].
func (t *Tree) Symlink(target, path string) error {
	switch {
	case target == "":
		return ENOENT
	case len(target) >= MaxPath:
		return ENAMETOOLONG
	}
	for i := range len(target) {
		if target[i] == 0 {
			return EINVAL
		}
	}
	p, err := t.resolveName(path)
	switch {
	case err != nil:
		return settle(err)
	case p.dots != "" || p.path == "":
		return EEXIST
	case p.slash:
		return ENOENT
	}
	return settle(p.mount.layer.symlink(target, p.path))
}

// Readlink implements [FS].
func (t *Tree) Readlink(path string) (string, error) {
	p, err := t.resolve(path, false)
	if err != nil {
		return "", settle(err)
	}
	target, err := p.mount.layer.readlink(p.path)
	return target, settle(err)
}

// Chmod implements [FS].
func (t *Tree) Chmod(path string, perm Mode) error {
	return t.change(path, func(p place) error { return p.mount.layer.chmod(p.path, perm) })
}

// Chtimes implements [FS].
func (t *Tree) Chtimes(path string, atime, mtime int64) error {
	return t.change(path, func(p place) error { return p.mount.layer.chtimes(p.path, atime, mtime) })
}

func (t *Tree) change(path string, do func(place) error) error {
	p, err := t.resolve(path, true)
	if err != nil {
		return settle(err)
	}
	err = do(p)
	if errors.Is(err, ELOOP) { // became a link meanwhile
		err = EAGAIN
	}
	return settle(err)
}
