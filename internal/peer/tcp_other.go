//go:build !linux

package peer

import (
	"fmt"
	"net"
)

func tcpUID(*net.TCPConn) (int, error) {
	return 0, fmt.Errorf("%w: the kernel does not tell the user of a TCP connection on this platform", ErrUnknown)
}
