package keeper

import (
	"math"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// endOfLog is a cursor after every event, so that who waits for one after it is called
// when the run is closed.
const endOfLog spool.Seq = math.MaxUint64

// answerClosed answers a start once the run is closed; info describes it now. If too
// many wait already, it answers at once, and the server waits for itself.
func (c *serverConn) answerClosed(id uint64, info spool.Info) {
	answer := func() {
		if closed, err := c.server.host.Stat(c.ctx, info.ID); err == nil {
			info = closed
		}
		b := record.AppendInfo(appendHeader(make([]byte, 0, messageRoom), messageStarted, id), &info)
		if !c.transport.trySend(b) {
			c.server.updates.Go(func() { _ = c.transport.send(b) }) // nothing to do if the connection is lost
		}
	}
	if ready, err := c.onEvent(awaitParams{info.ID, endOfLog}, answer); ready || err != nil {
		answer()
	}
}
