package access

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
)

// Notifier is a backend that tells when there are events to read, so that who waits for
// them needs no goroutine.
type Notifier interface {
	// OnEvent has f called once, when there is an event after a cursor or the run is
	// closed, by any goroutine; f must not block. After stop it is not called any
	// more, unless it is being called. If that is so already, stop is nil and f is not
	// called. The context is only for what OnEvent itself does. The error is
	// [spool.ErrUnsupported] if only [spool.Backend.Read] can wait.
	OnEvent(ctx context.Context, id spool.RunID, after spool.Seq, f func()) (stop func(), err error)
}

var _ Notifier = (*backend)(nil)

// OnEvent implements [Notifier].
func (b *backend) OnEvent(ctx context.Context, id spool.RunID, after spool.Seq, f func()) (stop func(), err error) {
	n, ok := b.inner.(Notifier)
	if !ok {
		return nil, fmt.Errorf("%w: waiting without a read", spool.ErrUnsupported)
	}
	if _, err := b.enterPage(ctx, id); err != nil {
		return nil, err
	}
	return n.OnEvent(ctx, id, after, f)
}
