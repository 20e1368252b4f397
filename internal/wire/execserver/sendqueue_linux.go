package execserver

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// unsentBytes is how much the kernel queues for a client beyond what the client
// has room for. The kernel's default is some megabytes, for each client that
// does not read.
const unsentBytes = 256 << 10

// limitSendQueue limits the data that the kernel queues for a connection. It
// does not limit what is under way to a client that reads.
func limitSendQueue(c net.Conn) {
	if _, isTCP := c.(*net.TCPConn); !isTCP {
		return
	}
	if raw, err := c.(syscall.Conn).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes) // without it the kernel queues more
		})
	}
}

// waitWritable waits until the kernel takes data for the connection, or the
// connection has ended. An answer that is made then is soon out of our memory.
func waitWritable(c net.Conn) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Write(func(fd uintptr) bool { // an error means that it has ended
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n, err := unix.Poll(fds, 0)
			return n != 0 || err != nil && err != unix.EINTR
		})
	}
}
