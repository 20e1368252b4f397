package cli

import "golang.org/x/sys/unix"

// keepDescriptors makes sure that no descriptor we inherited goes on to what
// we start: a run must not hold a pipe of whoever called us.
func keepDescriptors() {
	// A kernel without the call leaves them as they are, which is what
	// every other program does.
	_ = unix.CloseRange(3, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC)
}
