package vfs

import (
	"errors"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// dirFile is an open file of this machine.
type dirFile struct {
	fd    *os.File
	quota *Quota
	dir   bool
	flags Flags
	inode *openInode

	closed atomic.Bool
}

func (f *dirFile) control(do func(fd int) error) error {
	raw, err := f.fd.SyscallConn()
	if err != nil {
		return EBADF
	}
	doErr := error(nil)
	if err := raw.Control(func(fd uintptr) { doErr = do(int(fd)) }); err != nil {
		return EBADF
	}
	return doErr
}

func (f *dirFile) Stat() (info Info, err error) {
	err = f.control(func(fd int) error {
		info, err = fstat(fd)
		return err
	})
	if err != nil {
		return Info{}, ErrnoOf(err)
	}
	return info, nil
}

func (f *dirFile) check(want Flags) error {
	switch {
	case f.dir:
		return EISDIR
	case want&^f.flags != 0:
		return EBADF
	}
	return nil
}

func (f *dirFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check(Read); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, EINVAL
	}
	n, err := f.fd.ReadAt(p, off)
	if err != nil && !errors.Is(err, io.EOF) && n == 0 {
		return 0, ErrnoOf(err)
	}
	return n, nil
}

func (f *dirFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check(Write); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, EINVAL
	}
	f.inode.growing.Lock()
	defer f.inode.growing.Unlock()
	n, _, err := f.write(p, off)
	return n, err
}

func (f *dirFile) Append(p []byte) (int, int64, error) {
	if err := f.check(Write); err != nil {
		return 0, 0, err
	}
	f.inode.growing.Lock()
	defer f.inode.growing.Unlock()
	return f.write(p, -1)
}

// write writes what the quota allows, at the end if off is negative, and
// returns also where that ended. Callers hold growing.
func (f *dirFile) write(p []byte, off int64) (n int, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	at := off
	if off < 0 || f.flags&Append != 0 {
		at = info.Size
	}
	if len(p) == 0 {
		return 0, at, nil
	}
	if grow := at + int64(len(p)) - info.Size; grow > 0 {
		got := f.quota.upTo(grow)
		if short := grow - got; short > 0 {
			p = p[:max(0, int64(len(p))-short)]
		}
		if len(p) == 0 {
			_ = f.quota.add(-got, 0)
			return 0, at, ENOSPC
		}
	}
	err = f.control(func(fd int) error {
		for n < len(p) {
			var m int
			var err error
			if f.flags&Append != 0 {
				m, err = unix.Write(fd, p[n:])
			} else {
				m, err = unix.Pwrite(fd, p[n:], at+int64(n))
			}
			n += max(0, m)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return err
			}
		}
		return nil
	})
	if after, statErr := f.Stat(); statErr == nil && f.flags&Append != 0 {
		return n, after.Size, partial(n, err)
	}
	return n, at + int64(n), partial(n, err)
}

func (f *dirFile) Truncate(size int64) error {
	if err := f.check(Write); err != nil {
		return err
	}
	if size < 0 {
		return EINVAL
	}
	f.inode.growing.Lock()
	defer f.inode.growing.Unlock()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.quota.add(size-info.Size, 0); err != nil {
		return err
	}
	err = f.control(func(fd int) error { return unix.Ftruncate(fd, size) })
	if err != nil {
		_ = f.quota.add(info.Size-size, 0)
		return ErrnoOf(err)
	}
	return nil
}

func (f *dirFile) Sync() error {
	err := f.control(unix.Fsync)
	if errors.Is(err, unix.EINVAL) || err == nil {
		return nil
	}
	return ErrnoOf(err)
}

func (f *dirFile) Close() error {
	if f.closed.Swap(true) {
		return EBADF
	}
	f.inode.growing.Lock()
	defer f.inode.growing.Unlock()
	info, _ := f.Stat()
	// Before the descriptor is closed, because the number of the inode may be
	// used again after that.
	f.quota.closed(f.inode, info.Size)
	if err := f.fd.Close(); err != nil {
		return ErrnoOf(err)
	}
	return nil
}
