//go:build !linux && !darwin

package peer

import (
	"fmt"
	"net"
)

func unixUID(*net.UnixConn) (int, error) {
	return 0, fmt.Errorf("%w: not on this platform", ErrUnknown)
}

func ambiguous(int) bool { return false }
