package httpapi

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
)

// A WebSocket that ends because of a problem has the status of the problem and this as
// its close code: 4401, 4403, 4404, 4429 …
const closeStatus = 4000

// closeSlow is the close code for a client that took nothing for a long time.
const closeSlow = 4008

// upgrade turns the request into a WebSocket that speaks one of the protocols. If it
// returns an error, the answer was sent.
func (c *call) upgrade(protocols ...string) (*websocket.Conn, error) {
	conn, err := websocket.Accept(c.w, c.r, &websocket.AcceptOptions{
		Subprotocols: protocols, CompressionMode: websocket.CompressionDisabled,
		InsecureSkipVerify: true, // the gate has checked the origin
	})
	if err != nil {
		c.server.log.Debug("upgrade failed", "request", c.id, "peer", c.r.RemoteAddr, "err", err)
		return nil, err
	}
	return conn, nil
}

// wantsWebSocket returns the problem of a request that does not ask for a WebSocket.
func (c *call) wantsWebSocket() error {
	for token := range strings.SplitSeq(c.r.Header.Get("Upgrade"), ",") {
		if strings.EqualFold(strings.TrimSpace(token), "websocket") && c.r.ProtoMajor == 1 {
			return nil
		}
	}
	return problemf("upgrade", "%s speaks WebSocket", c.r.URL.Path)
}

// refuseSocket tells a page why it gets no WebSocket, and reports whether it did. A
// page cannot read the answer to a request for one, only how a WebSocket was closed;
// programs get the problem.
func (c *call) refuseSocket(p *Problem) bool {
	if c.op == nil || c.op.protocol == "" || c.r.Header.Get("Origin") == "" || c.wantsWebSocket() != nil {
		return false
	}
	conn, err := c.upgrade(c.op.protocol)
	if err == nil {
		_ = conn.Close(closeStatus+websocket.StatusCode(p.Status), p.Code) // the client may have left
	}
	return true
}

// closeFor returns the close code and the reason for the end of a WebSocket after an
// error.
func (c *call) closeFor(err error) (code websocket.StatusCode, reason string) {
	cause := context.Cause(c.ctx)
	switch {
	case errors.Is(cause, errRevoked):
		var end websocket.CloseError
		errors.As(errRevoked, &end)
		return end.Code, end.Reason
	case errors.Is(cause, spool.ErrClosed), errors.Is(err, spool.ErrClosed):
		return websocket.StatusGoingAway, "shutdown"
	case errors.Is(err, errSlow):
		return closeSlow, "slow"
	}
	p := c.complete(*toProblem(err))
	return closeStatus + websocket.StatusCode(p.Status), p.Code
}

// errSlow is why a client is cut off that takes nothing.
var errSlow = errors.New("the client takes nothing")

// errLeft is why a WebSocket ends whose client has left.
var errLeft = errors.New("the client has left")

// errPanicked is why a WebSocket ends whose goroutine panicked.
var errPanicked = errors.New("internal error")

// keepAlive pings the client of a WebSocket until the context ends or the connection
// is lost, so that no proxy takes the connection for dead. A client that does not
// answer may be busy.
func (c *call) keepAlive(ctx context.Context, conn *websocket.Conn) error {
	tick := time.NewTicker(c.server.limits.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		ping, cancel := context.WithTimeout(ctx, c.server.limits.Heartbeat)
		err := conn.Ping(ping)
		cancel()
		if err != nil && ping.Err() == nil {
			return errLeft
		}
	}
}

// sendSocket writes a message, for which the client has its time.
func (c *call) sendSocket(conn *websocket.Conn, kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.server.limits.Stalled)
	defer cancel()
	began := time.Now()
	err := conn.Write(ctx, kind, b)
	if err != nil && ctx.Err() != nil && time.Since(began) >= c.server.limits.Stalled {
		return errSlow
	}
	return err
}
