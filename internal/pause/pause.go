// Package pause waits for a time or for the end of a context, whichever comes first.
package pause

import (
	"context"
	"time"
)

// For waits for d. It returns the cause of the end of ctx if that comes first, or has
// come already.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
