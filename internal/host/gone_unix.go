//go:build unix

package host

import (
	"errors"
	"syscall"
)

// isGone reports that there is no such process, as far as can be seen.
func isGone(pid int) bool {
	return pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
