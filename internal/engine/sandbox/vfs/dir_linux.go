package vfs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Dir is a directory of this machine. Every step from it is taken by
// openat2(2) with RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS and
// RESOLVE_NO_MAGICLINKS, so that nothing above it can be reached whatever
// happens to the files meanwhile. Devices, pipes and sockets are not opened.
type Dir struct {
	root  *os.File
	fd    int
	quota *Quota
}

// OpenDir returns the directory of this machine. Growth of its files and new
// ones count against the quota, which may be nil.
func OpenDir(path string, q *Quota) (*Dir, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open directory %q: %w", path, err)
	}
	d := &Dir{root: os.NewFile(uintptr(fd), path), fd: fd, quota: q}
	probe, err := d.openat2("", unix.O_PATH, 0)
	if err != nil {
		_ = d.root.Close()
		if errors.Is(err, ENOSYS) || errors.Is(err, EPERM) {
			return nil, fmt.Errorf("open directory %q: this kernel lacks openat2, without which it cannot be offered safely: %w", path, err)
		}
		return nil, fmt.Errorf("open directory %q: %w", path, err)
	}
	_ = unix.Close(probe)
	return d, nil
}

// Close lets go of a directory that is in no [Tree]; a tree closes its own.
func (d *Dir) Close() error { return d.root.Close() }

func (d *Dir) close() error { return d.root.Close() }

const resolveSafe = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS

// openat2 opens a path beneath the root without following any link.
func (d *Dir) openat2(path string, flags int, perm Mode) (int, error) {
	if path == "" {
		path = "."
	}
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC | unix.O_NOFOLLOW), Resolve: resolveSafe}
	if flags&unix.O_CREAT != 0 {
		how.Mode = uint64(perm & permMask)
	}
	for {
		fd, err := unix.Openat2(d.fd, path, &how)
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EAGAIN) {
			return fd, own(err)
		}
	}
}

// own turns an error of the kernel's into one of ours.
func own(err error) error {
	if err == nil || errors.Is(err, errLink) {
		return err
	}
	return ErrnoOf(err)
}

// peek opens what a path names only to look at it or to act on it by name.
func (d *Dir) peek(path string, flags int) (int, error) {
	fd, err := d.openat2(path, unix.O_PATH|flags, 0)
	if errors.Is(err, ELOOP) {
		err = errLink // the end itself may be one: so it is in the middle
	}
	return fd, err
}

// in calls do with the directory of a path and the name in it.
func (d *Dir) in(path string, do func(dir int, name string) error) error {
	if path == "" {
		return EBUSY
	}
	dir, name := split(path)
	fd, err := d.peek(dir, unix.O_DIRECTORY)
	if errors.Is(err, ENOTDIR) {
		// It may be a link, which O_DIRECTORY tells no better.
		if info, statErr := d.lstat(dir); statErr == nil && info.Mode.IsSymlink() {
			err = errLink
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // holds nothing
	return own(do(fd, name))
}

func (d *Dir) lstat(path string) (Info, error) {
	switch {
	case path == "" || path == ".":
		return fstat(d.fd)
	case !strings.Contains(path, "/") && path != "..":
		// One name leads nowhere else, and need not be opened.
		var st unix.Stat_t
		if err := unix.Fstatat(d.fd, path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return Info{}, own(err)
		}
		return infoOf(&st), nil
	}
	fd, err := d.peek(path, 0)
	if err != nil {
		return Info{}, err
	}
	defer unix.Close(fd) //nolint:errcheck // holds nothing
	return fstat(fd)
}

func fstat(fd int) (Info, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Info{}, own(err)
	}
	return infoOf(&st), nil
}

func infoOf(st *unix.Stat_t) Info {
	return Info{
		Ino: st.Ino, Mode: Mode(st.Mode), Nlink: uint32(st.Nlink), Size: st.Size,
		Atime: st.Atim.Nano(), Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(),
	}
}

func (d *Dir) readdir(path string) ([]Entry, error) {
	fd, err := d.openat2(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, ELOOP) {
			err = errLink
		}
		return nil, err
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close() //nolint:errcheck // was only read
	list, err := dir.ReadDir(-1)
	if err != nil {
		return nil, own(err)
	}
	entries := make([]Entry, 0, len(list))
	for _, e := range list {
		var st unix.Stat_t
		if err := unix.Fstatat(fd, e.Name(), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			continue // gone meanwhile
		}
		entries = append(entries, Entry{Name: e.Name(), Ino: st.Ino, Type: Mode(st.Mode) & TypeMask})
	}
	sortEntries(entries)
	return entries, nil
}

func (d *Dir) mkdir(path string, perm Mode) error {
	return d.make(path, func(dir int, name string) error { return unix.Mkdirat(dir, name, uint32(perm&permMask)) })
}

func (d *Dir) symlink(target, path string) error {
	return d.make(path, func(dir int, name string) error { return unix.Symlinkat(target, dir, name) })
}

// make makes something new, if the quota allows.
func (d *Dir) make(path string, do func(dir int, name string) error) error {
	return d.in(path, func(dir int, name string) error {
		if err := d.quota.add(0, 1); err != nil {
			var st unix.Stat_t
			if unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				return EEXIST
			}
			return err
		}
		err := do(dir, name)
		if err != nil {
			_ = d.quota.add(0, -1)
		}
		return err
	})
}

func (d *Dir) readlink(path string) (target string, err error) {
	err = d.in(path, func(dir int, name string) error {
		buf := make([]byte, MaxPath)
		n, err := unix.Readlinkat(dir, name, buf)
		if err == nil {
			target = string(buf[:n])
		}
		return err
	})
	return target, err
}

func (d *Dir) unlink(path string) error { return d.remove(path, 0) }

func (d *Dir) rmdir(path string) error { return d.remove(path, unix.AT_REMOVEDIR) }

func (d *Dir) remove(path string, flags int) error {
	return d.in(path, func(dir int, name string) error {
		return d.quota.remove(func() error {
			fd, err := hold(dir, name)
			if err != nil {
				return err
			}
			defer unix.Close(fd) //nolint:errcheck // holds nothing
			if err := unix.Unlinkat(dir, name, flags); err != nil {
				return err
			}
			d.release(fd)
			return nil
		})
	})
}

// hold opens what a name names, to look at it after the name is removed.
func hold(dir int, name string) (int, error) {
	return unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// release gives back what a removed file took: now, or at its last close if the
// guest has it open. A file that has another name keeps its bytes.
func (d *Dir) release(fd int) {
	var bytes int64
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && Mode(st.Mode).IsFile() && st.Nlink == 0 {
		if d.quota.unlinked(inode{st.Dev, st.Ino}) {
			return
		}
		// No handle is left that could change the size.
		if unix.Fstat(fd, &st) == nil {
			bytes = st.Size
		}
	}
	_ = d.quota.add(-bytes, -1) // giving back never fails
}

func (d *Dir) rename(from, to string) error {
	return d.in(from, func(fromDir int, fromName string) error {
		return d.in(to, func(toDir int, toName string) error {
			return d.quota.remove(func() error { return d.replace(fromDir, fromName, toDir, toName) })
		})
	})
}

// replace renames what a name names, and gives back what was in its place.
func (d *Dir) replace(fromDir int, fromName string, toDir int, toName string) error {
	var old, st unix.Stat_t
	replaced, err := hold(toDir, toName)
	if err == nil {
		defer unix.Close(replaced) //nolint:errcheck // holds nothing
		err = unix.Fstat(replaced, &old)
	}
	replaces := err == nil
	if err := unix.Fstatat(fromDir, fromName, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if err := unix.Renameat(fromDir, fromName, toDir, toName); err != nil {
		return err
	}
	if replaces && (old.Ino != st.Ino || old.Dev != st.Dev) {
		d.release(replaced)
	}
	return nil
}

func (d *Dir) chmod(path string, perm Mode) error {
	return d.byName(path, func(name string) error { return unix.Chmod(name, uint32(perm&permMask)) })
}

func (d *Dir) chtimes(path string, atime, mtime int64) error {
	spec := func(ns int64) unix.Timespec {
		if ns < 0 {
			return unix.Timespec{Nsec: unix.UTIME_OMIT}
		}
		return unix.NsecToTimespec(ns)
	}
	times := []unix.Timespec{spec(atime), spec(mtime)}
	return d.byName(path, func(name string) error { return unix.UtimesNanoAt(unix.AT_FDCWD, name, times, 0) })
}

// byName calls do with a name of this process for exactly the file that was
// looked at: the file behind a descriptor. Links have no such name.
func (d *Dir) byName(path string, do func(name string) error) error {
	fd, err := d.peek(path, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd) //nolint:errcheck // holds nothing
	info, err := fstat(fd)
	switch {
	case err != nil:
		return err
	case info.Mode.IsSymlink():
		return ELOOP
	}
	return own(do(fmt.Sprintf("/proc/self/fd/%d", fd)))
}

func (d *Dir) open(path string, flags Flags, perm Mode) (File, error) {
	mode := unix.O_NONBLOCK | unix.O_NOCTTY
	switch {
	case flags&(Read|Write) == Read|Write:
		mode |= unix.O_RDWR
	case flags&Write != 0:
		mode |= unix.O_WRONLY
	}
	if flags&Append != 0 {
		mode |= unix.O_APPEND
	}
	if flags&Directory != 0 {
		mode |= unix.O_DIRECTORY
	}
	// Creating and emptying are steps of their own, because the quota has a
	// say in the first and wants to know about the second.
	if flags&(Create|Exclusive) == Create|Exclusive {
		return d.create(path, flags, mode, perm)
	}
	fd, err := d.openat2(path, mode, 0)
	switch {
	case errors.Is(err, ENOENT) && flags&Create != 0 && flags&Directory == 0:
		return d.create(path, flags, mode, perm)
	case errors.Is(err, ELOOP):
		return nil, d.whichLink(path, flags)
	case errors.Is(err, ENXIO): // a pipe without a reader
		return nil, EACCES
	case err != nil:
		return nil, err
	}
	return d.opened(fd, flags, flags&Truncate != 0 && flags&Write != 0)
}

// whichLink tells a link at the end of a path, which was not to be followed,
// from one before that.
func (d *Dir) whichLink(path string, flags Flags) error {
	info, err := d.lstat(path)
	switch {
	case err != nil:
		return err
	case info.Mode.IsSymlink() && flags&(Create|Exclusive) == Create|Exclusive:
		return EEXIST
	case info.Mode.IsSymlink() && flags&Directory != 0:
		return ENOTDIR
	}
	return ELOOP
}

func (d *Dir) create(path string, flags Flags, mode int, perm Mode) (File, error) {
	if err := d.quota.add(0, 1); err != nil {
		if _, statErr := d.lstat(path); statErr == nil {
			err = EEXIST
		}
		return nil, err
	}
	fd, err := d.openat2(path, mode&^unix.O_DIRECTORY|unix.O_CREAT|unix.O_EXCL, perm)
	if err != nil {
		_ = d.quota.add(0, -1)
		if errors.Is(err, ELOOP) {
			err = d.whichLink(path, flags|Create|Exclusive)
		}
		return nil, err
	}
	return d.opened(fd, flags, false)
}

func (d *Dir) opened(fd int, flags Flags, empty bool) (File, error) {
	var st unix.Stat_t
	err := own(unix.Fstat(fd, &st))
	mode := Mode(st.Mode)
	if err == nil && !mode.IsFile() && !mode.IsDir() {
		err = EACCES // a device or a pipe: not for guests
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	f := &dirFile{fd: os.NewFile(uintptr(fd), ""), quota: d.quota, dir: mode.IsDir(), flags: flags}
	f.inode = d.quota.opened(inode{st.Dev, st.Ino})
	// A file that was removed before the quota knew of this handle has been
	// given back already. It is as if the removal had come first.
	if err := unix.Fstat(fd, &st); err != nil || mode.IsFile() && st.Nlink == 0 {
		_ = f.Close()
		return nil, ENOENT
	}
	if empty {
		if err := f.Truncate(0); err != nil {
			_ = f.Close()
			return nil, err
		}
	}
	return f, nil
}
