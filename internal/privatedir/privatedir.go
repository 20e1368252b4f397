//go:build unix

// Package privatedir checks that directories and files belong to the user of
// this process and that no other user can change them. What such a file says
// can be trusted; what another user wrote cannot.
package privatedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrNotPrivate is wrapped by the error of a file that belongs to another user,
// or that other users can change or read.
var ErrNotPrivate = errors.New("not private")

// writable are the permissions of others to change a file.
const writable fs.FileMode = 0o022

// Make makes a directory, with its parents, if it does not exist, and checks it
// as [Check] does.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return Check(dir)
}

// Check checks that dir is a directory of this user in which no other user can
// create or remove files. If dir is a symbolic link, it must belong to this user
// or to root: in /tmp, another user can make a link to a directory of this user.
func Check(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if fi.Mode().Type() == fs.ModeSymlink {
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			if err := checkOwner(dir, fi); err != nil {
				return err
			}
		}
		if fi, err = os.Stat(dir); err != nil {
			return err
		}
	}
	if !fi.IsDir() {
		return &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	return CheckFile(dir, fi)
}

// CheckEntries checks a directory and everything directly in it. It accepts a
// directory that does not exist.
func CheckEntries(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := Check(dir); err != nil {
		return err
	}
	for _, e := range entries {
		if err := checkEntry(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkEntry checks a file and, if it is a symbolic link, also its target.
func checkEntry(path string) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch fi.Mode().Type() {
	case fs.ModeSocket: // its permissions say who connects, not who changes it
		return checkOwner(path, fi)
	case fs.ModeSymlink: // its permissions have no meaning
		if err := checkOwner(path, fi); err != nil {
			return err
		}
		if fi, err = os.Stat(path); err != nil {
			return err
		}
	}
	return CheckFile(path, fi)
}

// CheckFile checks that a file, described by fi, belongs to this user and that
// no other user can change it.
func CheckFile(path string, fi fs.FileInfo) error {
	if err := checkOwner(path, fi); err != nil {
		return err
	}
	if perm := fi.Mode().Perm(); perm&writable != 0 {
		if fi.Mode()&fs.ModeSticky != 0 {
			return fmt.Errorf("%s is %w: all users share it; choose a directory of your own", path, ErrNotPrivate)
		}
		return fmt.Errorf("%s is %w: other users can change it (mode %#o); if only you used it, run: chmod go-w %[1]s", path, ErrNotPrivate, perm)
	}
	return nil
}

// CheckSecret checks a file with a secret, described by fi: it must belong to
// this user, and other users must not have access to it. A file of root may also
// be readable by its group. What is not a regular file, such as a pipe, passes.
func CheckSecret(path string, fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() {
		return nil
	}
	var access fs.FileMode = 0o077
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid == 0 && os.Geteuid() != 0 {
		access = 0o037
	} else if err := checkOwner(path, fi); err != nil {
		return err
	}
	if perm := fi.Mode().Perm(); perm&access != 0 {
		return fmt.Errorf("%s is %w: other users have access to it (mode %#o); run: chmod 600 %[1]s", path, ErrNotPrivate, perm)
	}
	return nil
}

func checkOwner(path string, fi fs.FileInfo) error {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is %w: it belongs to user %d, and you are user %d", path, ErrNotPrivate, st.Uid, os.Geteuid())
	}
	return nil
}
