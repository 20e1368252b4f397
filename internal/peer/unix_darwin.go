package peer

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

func unixUID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Xucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, os.NewSyscallError("getsockopt", credErr)
	}
	return int(cred.Uid), nil
}

func ambiguous(int) bool { return false }
