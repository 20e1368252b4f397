//go:build !linux

package execserver

import (
	"errors"

	"github.com/spool-run/spool/internal/wire/rpc"
)

// canWait is whether a connection can wait for its client without a payload.
const canWait = false

func (c *watchedConn) writeParts([]byte, rpc.Payload) error { return errors.ErrUnsupported }

func tryWrite(int, []byte) int { return 0 }
