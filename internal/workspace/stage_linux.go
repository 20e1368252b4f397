package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/failpoint"
)

// stager copies changed files from the upper directory to the stage.
type stager struct {
	upper, stage int
	links        map[uint64]string // files with several names, by number
}

// add copies the change with a number, and for a directory the chosen changes in it.
// It returns the number of the new file.
func (s *stager) add(n int, chosen []change) (uint64, error) {
	top := &chosen[n]
	name := strconv.Itoa(n)
	type made struct {
		path string
		mode uint32
	}
	var dirs []made
	if err := failpoint.Inject("workspace.stage"); err != nil {
		return 0, err
	}
	for i := n; i < len(chosen); i++ {
		c := &chosen[i]
		if c != top && (c.top != top.path || c.op == Deleted) {
			continue
		}
		path := name + strings.TrimPrefix(c.path, top.path)
		if err := s.copy(c, path); err != nil {
			return 0, fmt.Errorf("copy %s: %w", quote(c.path), err)
		}
		if isDir(&c.upper) {
			dirs = append(dirs, made{path, c.upper.Mode & permissions})
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- { // once they are full
		at, base, err := openParent(s.stage, dirs[i].path)
		if err != nil {
			return 0, err
		}
		err = chmodDir(at, base, dirs[i].mode)
		_ = unix.Close(at)
		if err != nil {
			return 0, err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstatat(s.stage, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return 0, err
	}
	return st.Ino, nil
}

// copy copies one file, link or directory.
func (s *stager) copy(c *change, path string) error {
	to, name, err := openParent(s.stage, path)
	if err != nil {
		return err
	}
	defer unix.Close(to)
	from, old, err := openParent(s.upper, c.path)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	switch c.upper.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(to, name, 0o700); err != nil {
			return err
		}
	case unix.S_IFLNK:
		target, err := readLink(from, old)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, to, name); err != nil {
			return err
		}
	case unix.S_IFREG:
		if first, ok := s.links[c.upper.Ino]; ok {
			return unix.Linkat(s.stage, first, to, name, 0)
		}
		if err := copyFile(from, old, to, name, c); err != nil {
			return err
		}
		if c.upper.Nlink > 1 {
			s.links[c.upper.Ino] = path
		}
		return nil
	default:
		return errors.New("only files, directories and symbolic links can be applied")
	}
	return chown(to, name, c)
}

// chown gives a new file the owner of the changed one, which only root can.
func chown(at int, name string, c *change) error {
	if os.Geteuid() != 0 {
		return nil
	}
	return unix.Fchownat(at, name, int(c.upper.Uid), int(c.upper.Gid), unix.AT_SYMLINK_NOFOLLOW)
}

// copyFile copies a regular file with its permissions and attributes.
func copyFile(from int, old string, to int, name string, c *change) (err error) {
	fd, err := openFile(from, old)
	if err != nil {
		return err
	}
	src := os.NewFile(uintptr(fd), old)
	defer src.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Ino != c.upper.Ino {
		return errors.New("it was changed just now")
	}
	fd, err = unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	dst := os.NewFile(uintptr(fd), name)
	defer func() { err = errors.Join(err, dst.Close()) }()
	if unix.IoctlFileClone(fd, int(src.Fd())) != nil { // where the file system can
		if _, err := io.Copy(dst, src); err != nil {
			return err
		}
	}
	if err := copyAttributes(int(src.Fd()), fd); err != nil {
		return err
	}
	if err := chown(to, name, c); err != nil {
		return err
	}
	mode := c.upper.Mode & permissions
	if c.base.Mode&unix.S_IFMT == unix.S_IFREG {
		mode |= c.base.Mode & 0o7000
	}
	return unix.Fchmod(fd, mode)
}

// copyAttributes copies the extended attributes that users set.
func copyAttributes(from, to int) error {
	b := make([]byte, 64<<10)
	n, err := unix.Flistxattr(from, b)
	if err != nil {
		if err == unix.ENOTSUP {
			return nil
		}
		return fmt.Errorf("list attributes: %w", err)
	}
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.") {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Fgetxattr(from, name, value)
		if err != nil {
			return fmt.Errorf("read attribute %s: %w", name, err)
		}
		if err := unix.Fsetxattr(to, name, value[:n], 0); err != nil {
			return fmt.Errorf("set attribute %s: %w", name, err)
		}
	}
	return nil
}
