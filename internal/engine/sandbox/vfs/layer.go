package vfs

import "errors"

// Layer is one tree of files that a [Tree] is made of: see [NewMemory],
// [OpenDir], [NewOverlay] and [ReadOnly].
//
// Its paths are relative to its root, which is "", and free of dots, empty
// components and trailing slashes. A layer follows no symbolic link: of one
// before the end of a path it says errLink, and the tree resolves it.
type Layer interface {
	lstat(path string) (Info, error)
	open(path string, flags Flags, perm Mode) (File, error)
	readdir(path string) ([]Entry, error)
	mkdir(path string, perm Mode) error
	unlink(path string) error
	rmdir(path string) error
	rename(from, to string) error
	symlink(target, path string) error
	readlink(path string) (string, error)
	chmod(path string, perm Mode) error
	chtimes(path string, atime, mtime int64) error
	close() error
}

// errLink says that a directory of the path is a symbolic link.
var errLink = errors.New("symbolic link in the path")

// permMask are the permissions a guest may set: no set-user-id, no sticky bit.
const permMask Mode = 0o777

// readOnly is a layer that cannot be changed.
type readOnly struct{ Layer }

// ReadOnly returns a view of a layer through which nothing can be changed.
func ReadOnly(l Layer) Layer { return readOnly{l} }

func (r readOnly) open(path string, flags Flags, perm Mode) (File, error) {
	if flags&(Write|Append|Truncate) != 0 {
		if _, err := r.lstat(path); flags&Create == 0 && err != nil {
			return nil, err
		}
		return nil, EROFS
	}
	if flags&Create != 0 {
		_, err := r.lstat(path)
		switch {
		case errors.Is(err, ENOENT):
			return nil, EROFS
		case err == nil && flags&Exclusive != 0:
			return nil, EEXIST
		}
		flags &^= Create | Exclusive
	}
	return r.Layer.open(path, flags, perm)
}

// refuse returns EROFS, unless the path leads nowhere anyway.
func (r readOnly) refuse(path string) error {
	if _, err := r.lstat(path); err != nil {
		return err
	}
	return EROFS
}

// refuseNew is refuse for what would be made there.
func (r readOnly) refuseNew(path string) error {
	_, err := r.lstat(path)
	switch {
	case err == nil:
		return EEXIST
	case errors.Is(err, ENOENT):
		return EROFS
	}
	return err
}

func (r readOnly) mkdir(path string, _ Mode) error       { return r.refuseNew(path) }
func (r readOnly) unlink(path string) error              { return r.refuse(path) }
func (r readOnly) rmdir(path string) error               { return r.refuse(path) }
func (r readOnly) rename(from, _ string) error           { return r.refuse(from) }
func (r readOnly) symlink(_, path string) error          { return r.refuseNew(path) }
func (r readOnly) chmod(path string, _ Mode) error       { return r.refuse(path) }
func (r readOnly) chtimes(path string, _, _ int64) error { return r.refuse(path) }
