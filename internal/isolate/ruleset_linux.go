//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Rights of Landlock that change files, by the version that introduced them.
const (
	writeRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	readRights = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	fileRights = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE

	abiRefer    = 2
	abiTruncate = 3
	abiScopes   = 6
)

// landlockABI returns the version of Landlock, zero without.
var landlockABI = sync.OnceValue(func() int {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	if errno != 0 {
		return 0
	}
	return int(abi)
})

// newRuleset returns a ruleset that lets a process change only what is below the
// writable paths and read only what is below the readable ones, if there are any,
// and neither signal nor connect to processes outside, as far as the version goes.
// In a bare tree every directory can be listed. The caller proves what it does.
func newRuleset(abi int, writable, readable []string, bare bool) (_ *os.File, err error) {
	if abi < 1 {
		return nil, errors.New("the kernel has no Landlock")
	}
	rights := uint64(writeRights)
	if abi >= abiRefer {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= abiTruncate {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	write := rights
	if readable != nil {
		rights |= readRights
		write |= readRights
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rights}
	size := unsafe.Sizeof(attr.Handled_access_fs)
	if abi >= abiScopes {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	f := os.NewFile(fd, "ruleset")
	for _, path := range writable {
		if err := addRule(f, path, write); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	if bare {
		if err := addRule(f, "/", unix.LANDLOCK_ACCESS_FS_READ_DIR); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	for _, path := range readable {
		if err := addRule(f, path, readRights); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// addRule gives rights below a path. One that does not exist needs no rule.
func addRule(ruleset *os.File, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil
		}
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= fileRights
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, ruleset.Fd(), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("landlock_add_rule for %s: %w", path, errno)
	}
	return nil
}
