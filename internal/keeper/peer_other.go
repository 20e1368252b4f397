//go:build !linux

package keeper

import (
	"fmt"
	"net"

	"github.com/spool-run/spool"
)

// checkPeer refuses all connections: it cannot tell the user on this platform.
func checkPeer(net.Conn) error {
	return fmt.Errorf("%w: a keeper is not available on this platform", spool.ErrUnsupported)
}
