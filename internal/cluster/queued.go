package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/spool-run/spool"
)

// Read implements [spool.Backend]. When the node is lost the page carries the failure.
func (r *Router) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	until := time.Now().Add(q.Wait)
	for {
		page, err := r.read(ctx, id, q)
		queued, never := (*queuedError)(nil), (*neverError)(nil)
		switch {
		case errors.As(err, &never):
			return spool.Page{Next: q.After, Info: never.info}, nil
		case isCut(err) && ctx.Err() == nil && !r.isClosed() && time.Now().Before(until):
			pause(ctx, retryEvery, nil) // until its node answers, or is lost
			continue
		case !errors.As(err, &queued):
			return page, err
		case ctx.Err() != nil:
			return spool.Page{}, context.Cause(ctx)
		case time.Now().After(until):
			return spool.Page{Next: q.After, Info: queued.info}, nil
		}
		wctx, cancel := context.WithDeadline(ctx, until)
		r.queue.await(wctx, id)
		cancel()
	}
}

// Control implements [spool.Backend]. A run that waits in the queue can be stopped: it
// never starts.
func (r *Router) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	ends := c.Op == spool.ControlStop || c.Op == spool.ControlKill
	if c.ID == "" {
		c.ID = newNonce() // so that it is done once
	}
	for {
		err := r.at(ctx, id, func(b Backend) error { return b.Control(ctx, id, c) })
		queued, never := (*queuedError)(nil), (*neverError)(nil)
		if ends && errors.As(err, &never) {
			return nil // nothing is left to do
		}
		if !ends || !errors.As(err, &queued) {
			return err
		}
		canceled, err := r.queue.cancel(ctx, id)
		if canceled || err != nil && !errors.Is(err, errClaimed) {
			return err
		}
		pause(ctx, retryEvery, nil) // a node starts it: then it can be stopped there
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
