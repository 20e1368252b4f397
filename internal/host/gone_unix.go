//go:build unix

package host

import (
	"errors"
	"syscall"
)

// isGone reports whether no process has this pid.
func isGone(pid int) bool {
	return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
