package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// writevAt writes the parts at off with one system call.
func writevAt(f *os.File, vec [][]byte, off int64) (int, error) {
	if len(vec) == 1 {
		return unix.Pwrite(int(f.Fd()), vec[0], off)
	}
	return unix.Pwritev(int(f.Fd()), vec, off)
}

// makeFile opens the file of a segment and creates it if necessary. Unlike the os
// package it does not try whether the file can be polled, which saves time at
// every start.
func makeFile(path string, flag int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|flag, 0o600)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		default:
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// datasync makes the contents of a file durable. If the file is closed meanwhile
// it returns fs.ErrClosed and does not touch another file with the same
// descriptor.
func datasync(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var errSync error
	err = c.Control(func(fd uintptr) {
		for {
			if errSync = unix.Fdatasync(int(fd)); errSync != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	return os.NewSyscallError("fdatasync", errSync)
}

// allocate gives a file a size and allocates its blocks.
func allocate(f *os.File, size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return writeZeros(f, size)
	}
	return os.NewSyscallError("fallocate", err)
}

// renameNew renames a file, unless the new name is taken.
func renameNew(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if err == unix.EINVAL || err == unix.ENOSYS { // the file system does not support it
		return linkNew(from, to)
	}
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return nil
}

// exchange gives two files each other's name.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	if err == unix.EINVAL || err == unix.ENOSYS {
		return ErrNoCompression
	}
	if err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}
