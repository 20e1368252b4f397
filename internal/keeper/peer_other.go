//go:build !linux

package keeper

import (
	"fmt"
	"net"

	"github.com/spool-run/spool"
)

// checkPeer refuses everybody where it cannot tell who connects.
func checkPeer(net.Conn) error {
	return fmt.Errorf("%w: a keeper is not available on this platform", spool.ErrUnsupported)
}
