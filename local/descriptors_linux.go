package local

import "golang.org/x/sys/unix"

// closeOnExec marks every inherited descriptor above the standard ones.
func closeOnExec() {
	// A kernel without the call leaves them as they are, which is what
	// every other program does.
	_ = unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC)
}
