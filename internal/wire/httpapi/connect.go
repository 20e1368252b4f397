package httpapi

import (
	"fmt"

	"github.com/spool-run/spool"
)

// connect turns the request into a WebSocket that speaks the run/* protocol.
func (c *call) connect() error {
	if c.server.rpc == nil {
		return fmt.Errorf("run/* over WebSocket: %w by this server", spool.ErrUnsupported)
	}
	if err := c.wantsWebSocket(); err != nil {
		return err
	}
	end, err := c.server.streams.begin(c)
	if err != nil {
		return err
	}
	defer end()
	c.server.rpc.ServeRuns(c.w, c.r.WithContext(c.ctx), c.subject)
	return nil
}
