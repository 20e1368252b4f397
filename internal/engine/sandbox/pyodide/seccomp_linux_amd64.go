package pyodide

import "golang.org/x/sys/unix"

var allowedHere = []uint32{
	unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_READLINK, unix.SYS_ACCESS,
	unix.SYS_EPOLL_WAIT, unix.SYS_POLL, unix.SYS_TIME, unix.SYS_ARCH_PRCTL,
}
