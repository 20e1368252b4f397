package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// outputPipe is the size of a pipe to which a whole log is written. With the usual 64 KiB
// the reader and this process wait for each other after each part.
const outputPipe = 256 << 10

// growPipe makes a pipe larger, if f is one and the system allows it.
func growPipe(f *os.File) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && n < outputPipe {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, outputPipe) // a smaller one works, too
		}
	})
}
