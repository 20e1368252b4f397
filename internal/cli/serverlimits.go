package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool/internal/wire/execserver"
)

// serverLimits are the flags that limit the connections of a server.
type serverLimits struct {
	connections, requests int
	unread, unreadTotal   byteCount
	received              byteCount
	handshake, stalled    time.Duration
}

// add defines the flags.
func (l *serverLimits) add(flags *pflag.FlagSet) {
	l.unread, l.unreadTotal, l.received = execserver.DefaultUnread, execserver.DefaultUnreadTotal, execserver.DefaultReceived
	flags.IntVar(&l.connections, "max-connections", execserver.DefaultConnections, "`number` of connections at once; more are refused")
	flags.IntVar(&l.requests, "max-requests", execserver.DefaultRequests, "`number` of unanswered requests per connection; more wait")
	flags.Var(&l.unread, "max-unread", "`bytes` of unread answers per connection; above them its requests wait")
	flags.Var(&l.unreadTotal, "max-unread-total", "`bytes` of unread answers of all connections together")
	flags.Var(&l.received, "max-received", "`bytes` of unanswered requests of all connections together; more wait")
	flags.DurationVar(&l.handshake, "handshake-for", execserver.DefaultHandshake, "close a connection without a handshake after this `time`")
	flags.DurationVar(&l.stalled, "stalled-for", execserver.DefaultStalled, "close a connection whose client does not read for this `time`; its session stays for --detached-for")
}

// limits checks the flags.
func (l *serverLimits) limits() (execserver.Limits, error) {
	if l.connections <= 0 || l.requests <= 0 || l.unread <= 0 || l.unreadTotal <= 0 || l.received <= 0 || l.handshake <= 0 || l.stalled <= 0 {
		return execserver.Limits{}, usageErrorf("--max-connections, --max-requests, --max-unread, --max-unread-total, --max-received, --handshake-for and --stalled-for must be positive")
	}
	return execserver.Limits{
		Connections: l.connections, Requests: l.requests, Unread: int64(l.unread), UnreadTotal: int64(l.unreadTotal),
		Received:  int64(l.received),
		Handshake: l.handshake, Stalled: l.stalled,
	}, nil
}
