package peer

import (
	"bytes"
	"net"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

func unixUID(c *net.UnixConn) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if credErr != nil {
		return 0, os.NewSyscallError("getsockopt", credErr)
	}
	return int(cred.Uid), nil
}

// ambiguous reports whether uid may stand for several users: in a user
// namespace, the kernel shows all users that the namespace does not map as one.
func ambiguous(uid int) bool { return uid == overflowUID() }

// overflowUID returns the user that stands for unmapped users, or -1 if this
// user namespace maps all users.
var overflowUID = sync.OnceValue(func() int {
	m, err := os.ReadFile("/proc/self/uid_map")
	if f := bytes.Fields(m); err == nil && len(f) == 3 && string(f[0]) == "0" && string(f[2]) == "4294967295" {
		return -1
	}
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if uid, convErr := strconv.Atoi(string(bytes.TrimSpace(b))); err == nil && convErr == nil {
		return uid
	}
	return 65534
})
