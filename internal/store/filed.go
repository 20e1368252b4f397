package store

import (
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
)

// The files of a run begin in the directory runs. Once the run is complete and
// the index has it, they are filed: moved to one of its 256 subdirectories, from
// which they never come back. So a process that looks in runs first and then in
// the subdirectory finds every file, and a run that the index may not know is in
// runs.

// shardOf names the subdirectory of a run. It is chosen by a hash: the ids of a
// caller may all begin alike.
func shardOf(id spool.RunID) string {
	sum := crc32.Checksum([]byte(id), castagnoli)
	return hex.EncodeToString([]byte{byte(sum)})
}

// shardDir returns the directory of a run that is filed.
func (s *Store) shardDir(id spool.RunID) string { return filepath.Join(s.runsDir(), shardOf(id)) }

// filedPath returns where a file in the directory runs goes when its run is filed.
func filedPath(path string) string {
	dir, name := filepath.Split(path)
	id, _, _ := strings.Cut(name, ".")
	return dir + shardOf(spool.RunID(id)) + string(filepath.Separator) + name
}

// openFile opens the file of a segment for reading, filed or not.
func openFile(path string) (*os.File, error) {
	f, err := openRegular(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	if f, err := openRegular(filedPath(path)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	return nil, err // it names the path that the caller knows
}

// openRegular opens a regular file for reading. Unlike [os.Open] it does not try to wait
// for it as for a pipe, which costs three system calls.
func openRegular(path string) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case syscall.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// statSegment describes the file of a segment, filed or not.
func statSegment(path string) (fs.FileInfo, error) {
	fi, err := os.Lstat(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return fi, err
	}
	if fi, err := os.Lstat(filedPath(path)); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return fi, err
	}
	return nil, err
}

// removeSegment deletes the file of a segment, filed or not, which may be gone
// already.
func removeSegment(path string) error {
	if err := removeFile(path); err != nil {
		return err
	}
	return removeFile(filedPath(path))
}

// checkNotFiled returns [fs.ErrExist] if the file of a segment is filed.
func checkNotFiled(path string) error {
	switch err := syscall.Access(filedPath(path), 0); err {
	case nil:
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	case syscall.ENOENT:
		return nil
	default:
		return &fs.PathError{Op: "access", Path: path, Err: err}
	}
}
