//go:build amd64 || arm64

package isolate

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
)

func sendFDs(control int, l *layout, fds []int) error {
	b, err := encode(l)
	if err != nil {
		return err
	}
	return fdpass.Send(control, b, fds...)
}

// trees opens the mounts of a sandbox whose users are not those of the machine: in
// each, the files of root belong to the sandbox's user 0. Only root outside can
// make them. Without subuid there are none, and the first process opens them.
func (l *layout) trees(pid int, subuid bool) (fds []int, err error) {
	if !subuid {
		return nil, nil
	}
	users, err := unix.Open(fmt.Sprintf("/proc/%d/ns/user", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the users of the sandbox: %w", err)
	}
	defer unix.Close(users)
	// Private, because what the machine mounts there later is neither read-only nor
	// of the sandbox's users.
	mapped := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users), Propagation: unix.MS_PRIVATE}
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
	if l.Open {
		ro.Attr_set = unix.MOUNT_ATTR_NOSUID
	}
	var points []string
	if !l.Bare {
		if points, err = mountPoints(); err != nil {
			return nil, err
		}
	}
	for _, path := range points {
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.O_CLOEXEC)
		if err != nil {
			if path == "/" {
				return fds, try(err, "open_tree(/)")
			}
			continue // it is hidden, or gone
		}
		fds = append(fds, fd)
		l.Paths = append(l.Paths, path)
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &mapped); err != nil {
			if path == "/" {
				return fds, try(err, "mount_setattr(MOUNT_ATTR_IDMAP on /)")
			}
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &private); err != nil {
				return fds, try(err, "mount_setattr(MS_PRIVATE on %s)", path)
			}
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &ro); err != nil {
			return fds, try(err, "mount_setattr(%s)", path)
		}
		if err := checkTrees(len(fds), len(fds)); err != nil {
			return fds, err
		}
	}
	for i, m := range l.Mounts {
		open := func(path string, number *int) error {
			fd, err := openTree(path, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			*number = len(fds)
			attr := &mapped
			if m.Kind == mountReadable && Below("/sys", path) { // its files have no owner in the sandbox
				attr = &private
			}
			err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, attr)
			if err != nil && l.Hollow { // every user can read what is in it
				err = unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &private)
			}
			if err != nil {
				return try(err, "mount_setattr(MOUNT_ATTR_IDMAP on %s)", path)
			}
			return checkTrees(len(l.Paths), len(fds))
		}
		if m.Kind == mountHidden || m.Kind == mountPinned {
			continue
		}
		if err := open(m.Path, &l.Mounts[i].Tree); err != nil {
			return fds, err
		}
		if m.Kind == mountOverlay {
			if err := open(m.Dir, &l.Mounts[i].Work); err != nil {
				return fds, err
			}
		}
	}
	l.Trees = len(fds)
	return fds, nil
}

// checkTrees refuses more trees than can be passed: mounts of the machine, which
// may be half of them, and paths of the isolation.
func checkTrees(mounts, all int) error {
	switch {
	case mounts > maxTrees/2:
		return fmt.Errorf("this machine has more than %d mounts", maxTrees/2)
	case all > maxTrees:
		return fmt.Errorf("the isolation has more than %d paths", maxTrees-mounts)
	}
	return nil
}

// allMountPoints lists what is mounted.
func allMountPoints() ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var list []string
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 5 {
			list = append(list, strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(f[4]))
		}
	}
	return list, nil
}

// mountPoints lists what is mounted, but for what a sandbox has of its own.
func mountPoints() ([]string, error) {
	all, err := allMountPoints()
	if err != nil {
		return nil, err
	}
	list := []string{"/"}
	for _, path := range all {
		own := path == "/"
		for _, dir := range []string{"/proc", "/sys", "/dev", "/tmp", "/var/tmp"} {
			own = own || Below(dir, path)
		}
		if !own {
			list = append(list, path)
		}
	}
	return list, nil
}
