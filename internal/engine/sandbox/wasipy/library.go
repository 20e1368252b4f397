package wasipy

import (
	"path"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// libraryPath is where a guest sees its standard library.
const libraryPath = "/usr/lib/python313.zip"

// withLibrary is the file system of a context and the library, read-only,
// beside it.
type withLibrary struct {
	vfs.FS
	library []byte
}

func (m *machine) files(fsys vfs.FS) vfs.FS { return withLibrary{fsys, m.library} }

func isLibrary(p string) bool { return p == libraryPath || path.Clean(p) == libraryPath }

// Stat implements [vfs.FS].
func (w withLibrary) Stat(p string, follow bool) (vfs.Info, error) {
	if isLibrary(p) {
		return libraryFile(w.library).Stat()
	}
	return w.FS.Stat(p, follow)
}

// Open implements [vfs.FS].
func (w withLibrary) Open(p string, flags vfs.Flags, perm vfs.Mode) (vfs.File, error) {
	if !isLibrary(p) {
		return w.FS.Open(p, flags, perm)
	}
	switch {
	case flags&vfs.Directory != 0:
		return nil, vfs.ENOTDIR
	case flags&(vfs.Create|vfs.Exclusive) == vfs.Create|vfs.Exclusive:
		return nil, vfs.EEXIST
	case flags&(vfs.Write|vfs.Truncate|vfs.Append) != 0:
		return nil, vfs.EROFS
	}
	return libraryFile(w.library), nil
}

// libraryFile is the library as an open file.
type libraryFile []byte

// Stat implements [vfs.File].
func (l libraryFile) Stat() (vfs.Info, error) {
	return vfs.Info{Dev: 1, Ino: 1, Mode: vfs.TypeFile | 0o444, Nlink: 1, Size: int64(len(l))}, nil
}

// ReadAt implements [vfs.File].
func (l libraryFile) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off >= int64(len(l)) {
		return 0, nil
	}
	return copy(p, l[off:]), nil
}

// WriteAt, Append and Truncate implement [vfs.File].
func (l libraryFile) WriteAt([]byte, int64) (int, error)          { return 0, vfs.EROFS }
func (l libraryFile) Append([]byte) (n int, end int64, err error) { return 0, 0, vfs.EROFS }
func (l libraryFile) Truncate(int64) error                        { return vfs.EROFS }

// Sync and Close implement [vfs.File].
func (l libraryFile) Sync() error  { return nil }
func (l libraryFile) Close() error { return nil }
