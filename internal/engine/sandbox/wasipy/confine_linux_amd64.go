package wasipy

import "golang.org/x/sys/unix"

var neededHere = []uint32{unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL}
