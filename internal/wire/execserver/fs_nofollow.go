package execserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// Methods with followSymlinks: false refuse a path that contains a symbolic
// link. They open the directories of the path one after the other, refuse
// links, and act relative to the last. So a link created meanwhile is not
// followed either.

// errSymlink is the error for a symbolic link as the last element of a path.
var errSymlink = rpc.Errorf(rpc.CodeInvalidRequest, "path contains a symbolic link")

// openParentNoFollow opens the directory that holds path. The name is "." for
// the root. A link among the directories is ENOTDIR.
func openParentNoFollow(path string) (dir *os.File, name string, err error) {
	parent, name := filepath.Split(path)
	if name == "" {
		name = "."
	}
	dir, err = openDirNoFollow(parent, false)
	return dir, name, err
}

// openDirNoFollow opens a directory. With create it makes the missing
// directories of the path.
func openDirNoFollow(path string, create bool) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC | searchOnly
	fd, err := unix.Open("/", flags, 0)
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(path, "/") {
		if name == "" {
			continue
		}
		next, err := unix.Openat(fd, name, flags, 0)
		if create && errors.Is(err, unix.ENOENT) {
			if err = unix.Mkdirat(fd, name, 0o777); err == nil || errors.Is(err, unix.EEXIST) {
				next, err = unix.Openat(fd, name, flags, 0)
			}
		}
		_ = unix.Close(fd) // opened only to walk the path
		if errors.Is(err, unix.ELOOP) {
			err = unix.ENOTDIR
		}
		if err != nil {
			return nil, err
		}
		fd = next
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openNoFollow opens a file. A link in its place is ELOOP.
func openNoFollow(path string, flags int, perm uint32) (*os.File, error) {
	dir, name, err := openParentNoFollow(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	fd, err := unix.Openat(int(dir.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

func mkdirNoFollow(path string, recursive bool) error {
	if recursive {
		dir, err := openDirNoFollow(path, true)
		if err != nil {
			return err
		}
		return dir.Close()
	}
	dir, name, err := openParentNoFollow(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if name == "." {
		return syscall.EEXIST
	}
	return unix.Mkdirat(int(dir.Fd()), name, 0o777)
}

// removeNoFollow removes a file or an empty directory, but not a link.
func removeNoFollow(path string) error {
	dir, name, err := openParentNoFollow(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	m, err := stat(fd, name, false)
	switch {
	case err != nil:
		return err
	case m.IsSymlink:
		return errSymlink
	case m.IsDirectory:
		return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	}
	return unix.Unlinkat(fd, name, 0)
}
