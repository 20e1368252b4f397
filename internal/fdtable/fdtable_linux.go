package fdtable

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reserve makes the table as large as n open files need, unless the process may not have
// so many. It may take some milliseconds; open files can be used meanwhile. If it fails,
// the table grows as it always does.
func Reserve(n int) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return
	}
	f, err := os.Open(os.DevNull)
	if err != nil {
		return
	}
	defer f.Close()
	last := int(min(uint64(n), limit.Cur)) - 1
	if fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, last); err == nil {
		_ = unix.Close(fd) // nothing was written
	}
}
