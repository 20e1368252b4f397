// Package vfs is the file system of a sandbox: a tree of directories of this
// machine that no ".." or symbolic link leads out of, of files in memory,
// and of overlays that collect changes, with bounds on what may be written.
//
// Errors are of type [Errno], exactly the one that a kernel would return, so
// that a guest sees the exception it expects.
package vfs

// FS is a file system. Paths are absolute and as the guest wrote them: they
// may hold ".", ".." and symbolic links, which are resolved component by
// component within the file system. Errors are or wrap an [Errno]. An FS is
// safe for concurrent use.
type FS interface {
	// Stat describes what a path names; with follow, what a symbolic link
	// at its end points at.
	Stat(path string, follow bool) (Info, error)
	// Open opens a file or a directory.
	Open(path string, flags Flags, perm Mode) (File, error)
	// ReadDir lists a directory by name, without "." and "..".
	ReadDir(path string) ([]Entry, error)
	Mkdir(path string, perm Mode) error
	// Unlink removes what is no directory, Rmdir an empty directory.
	Unlink(path string) error
	Rmdir(path string) error
	// Rename moves a file or a directory, in place of what is there if that
	// is of the same sort.
	Rename(from, to string) error
	Symlink(target, path string) error
	Readlink(path string) (string, error)
	// Chmod and Chtimes follow a symbolic link at the end of the path.
	// Times are in nanoseconds since 1970; negative ones stay as they are.
	Chmod(path string, perm Mode) error
	Chtimes(path string, atime, mtime int64) error
}

// File is an open file. It has no position: that is the guest's. It is safe
// for concurrent use.
type File interface {
	Stat() (Info, error)
	// ReadAt fills as much of p as there is at the offset. It returns less
	// than that, without an error, at the end of the file.
	ReadAt(p []byte, off int64) (int, error)
	// WriteAt writes all of p, or as much as fits; it fails only if nothing
	// could be written.
	WriteAt(p []byte, off int64) (int, error)
	// Append writes at the end, wherever that is by now, and returns also
	// the offset behind what was written.
	Append(p []byte) (n int, end int64, err error)
	Truncate(size int64) error
	Sync() error
	Close() error
}

// Flags say how to open. Exactly one of Read, Write or both must be set,
// except with Directory.
type Flags uint16

// The flags.
const (
	Read      Flags = 1 << iota
	Write           // may be written
	Append          // is written at its end; the caller uses File.Append
	Create          // make it if it is not there
	Exclusive       // with Create: fail if it is
	Truncate        // empty it
	Directory       // fail if it is no directory
	NoFollow        // fail with ELOOP if it is a symbolic link
)

// Mode is the type and the permissions of a file, with the bits of Unix.
type Mode uint32

// The parts of a [Mode].
const (
	TypeMask    Mode = 0o170000
	TypeDir     Mode = 0o040000
	TypeFile    Mode = 0o100000
	TypeSymlink Mode = 0o120000
	TypeChar    Mode = 0o020000
	PermMask    Mode = 0o7777
)

// IsDir tells a directory.
func (m Mode) IsDir() bool { return m&TypeMask == TypeDir }

// IsFile tells a regular file.
func (m Mode) IsFile() bool { return m&TypeMask == TypeFile }

// IsSymlink tells a symbolic link.
func (m Mode) IsSymlink() bool { return m&TypeMask == TypeSymlink }

// Info describes a file. Times are in nanoseconds since 1970.
type Info struct {
	Dev   uint64
	Ino   uint64
	Mode  Mode
	Nlink uint32
	Size  int64
	Atime int64
	Mtime int64
	Ctime int64
}

// Entry is one name in a directory.
type Entry struct {
	Name string
	Ino  uint64
	Type Mode // only the bits of TypeMask
}

// MaxPath and MaxName bound paths and names in bytes, as Linux does.
const (
	MaxPath = 4096
	MaxName = 255
	// MaxSymlinks is how many may be followed to resolve one path.
	MaxSymlinks = 40
)
