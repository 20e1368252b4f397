package launch

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's struct; all zero is the default action.
type sigaction [4]uint64

// ResetSIGCHLD turns off SIGCHLD. Launchers wait for descriptors; the signal would
// only interrupt one of their threads. It is meant for programs that do nothing
// else: package os/signal does not know of it.
func ResetSIGCHLD() error {
	var byDefault sigaction
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	if errno != 0 {
		return fmt.Errorf("turn off SIGCHLD: %w", errno)
	}
	return nil
}
