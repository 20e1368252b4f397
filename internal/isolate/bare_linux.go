//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A bare tree is empty but for the mounts of a layout. Directories on the way to
// them are made, and can be listed: they have nothing else in them. Together with
// the directories of hidden paths that lead to other mounts they are sealed at the
// end.

// bareSize bounds the directories of a bare tree, and of a hidden path.
const bareSize = "size=1m"

// enterBare makes an empty tree and changes to it.
func (l *layout) enterBare([]int) error {
	const at = "/tmp/root"
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k"); err != nil {
		return try(err, "mount(tmpfs)")
	}
	if err := os.Mkdir(at, 0o755); err != nil {
		return try(err, "mkdir")
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,"+bareSize); err != nil {
		return try(err, "mount(tmpfs on /)")
	}
	if err := unix.Chdir(at); err != nil {
		return try(err, "chdir")
	}
	dirs := []string{"dev", "proc"}
	if l.Tmp {
		dirs = append(dirs, "tmp", "var/tmp")
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make /%s: %w", dir, err)
		}
	}
	return nil
}

// leads reports whether something that is not hidden is below a hidden path.
func (l *layout) leads(path string) bool {
	for _, m := range l.Mounts {
		if m.Kind != mountHidden && Below(path, m.Path) {
			return true
		}
	}
	return false
}

// seal makes the links of a bare tree, and read-only what mounts were attached to.
func (l *layout) seal() error {
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	for _, m := range l.Mounts {
		if m.Kind == mountHidden && l.leads(m.Path) {
			if err := unix.MountSetattr(unix.AT_FDCWD, "."+m.Path, 0, &ro); err != nil {
				return try(err, "mount_setattr(%s)", m.Path)
			}
		}
	}
	if !l.Bare {
		return nil
	}
	for _, k := range l.Links {
		if _, err := os.Lstat("." + k.Path); err == nil {
			continue // in a directory that can be read
		}
		if err := os.MkdirAll(filepath.Dir("."+k.Path), 0o755); err != nil {
			return fmt.Errorf("make the place of %s: %w", k.Path, err)
		}
		if err := os.Symlink(k.To, "."+k.Path); err != nil {
			return fmt.Errorf("make a link: %w", err)
		}
	}
	ro.Attr_set |= unix.MOUNT_ATTR_NOEXEC // what can be executed is mounted
	return try(unix.MountSetattr(unix.AT_FDCWD, ".", 0, &ro), "mount_setattr(/)")
}

// hide covers a path with something empty. If it leads to other mounts, it is a
// directory that can be passed and not listed.
func (m mount) hide(target string, leads bool) error {
	fi, err := os.Lstat(target)
	switch {
	case errors.Is(err, os.ErrNotExist) && !leads:
		return nil
	case errors.Is(err, os.ErrNotExist):
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("make the place of %s: %w", m.Path, err)
		}
	case err != nil:
		return err
	}
	if leads {
		return try(unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=111,"+bareSize), "mount(tmpfs on %s)", m.Path)
	}
	if fi.IsDir() {
		return try(unix.Mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_RDONLY, "mode=000,size=4k"), "mount(tmpfs on %s)", m.Path)
	}
	fd, err := unix.OpenTree(unix.AT_FDCWD, "dev/null", unix.OPEN_TREE_CLONE|unix.O_CLOEXEC)
	if err != nil {
		return try(err, "open_tree(/dev/null)")
	}
	defer unix.Close(fd)
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &ro); err != nil {
		return try(err, "mount_setattr(%s)", m.Path)
	}
	return try(unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH), "move_mount(%s)", m.Path)
}
