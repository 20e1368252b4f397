//go:build amd64 || arm64

package pyodide

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where there are no namespaces, Landlock keeps a process to the files that it
// needs. It does not hide that there are others.

const (
	landlockRead = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockExec = unix.LANDLOCK_ACCESS_FS_EXECUTE
	// landlockAll is what the first version of Landlock knows, and what
	// later ones do.
	landlockAll     = 1<<13 - 1
	landlockVersion = 1 // flag of landlock_create_ruleset
)

var errNoLandlock = errors.New("the kernel has no Landlock")

// landlockRights are the accesses that this kernel can take away.
func landlockRights() (uint64, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, landlockVersion)
	if errno != 0 {
		return 0, fmt.Errorf("%w: %w", errNoLandlock, errno)
	}
	rights := uint64(landlockAll)
	if abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		rights |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return rights, nil
}

// confine keeps this thread, and what it starts, to reading those places.
func confine(places []place) error {
	rights, err := landlockRights()
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rights}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr.Handled_access_fs), 0)
	if errno != 0 {
		return fmt.Errorf("make Landlock ruleset: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, pl := range places {
		allow := uint64(unix.LANDLOCK_ACCESS_FS_READ_FILE | landlockExec)
		if pl.dir {
			allow = landlockRead
		} else if pl.to == "/dev/null" {
			allow = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
		}
		if err := landlockAllow(int(fd), pl.from, allow); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("apply Landlock: %w", errno)
	}
	return nil
}

func landlockAllow(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	defer unix.Close(fd)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("allow %s: %w", path, errno)
	}
	return nil
}
