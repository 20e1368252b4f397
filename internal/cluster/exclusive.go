package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// holder is a backend that ends runs by itself when it is not told in time to go on.
type holder interface {
	// Hold ends the runs with a label after the duration ttl, unless it is called
	// again before, whether this process lives or not.
	Hold(ctx context.Context, key, value string, ttl time.Duration) error
}

// exclusive counts the start of an exclusive run, until done is called.
func (o *Owner) exclusive() (done func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds++
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holds--
	}
}

// hold lets exclusive runs go on for as long as nobody can declare this node lost, and
// a bit less.
func (o *Owner) hold(ctx context.Context) error {
	h, ok := o.Backend.(holder)
	if !ok {
		return &spool.StartError{Reason: "unsupported", Err: fmt.Errorf("%w: node %s cannot end exclusive runs by itself", spool.ErrUnsupported, o.node)}
	}
	part := o.session.timing.TTL * exclusiveNumerator / exclusiveDenominator
	left := o.session.left(part)
	if left > 0 {
		if err := h.Hold(ctx, LabelExclusive, "true", left); err != nil {
			return err
		}
		left = o.session.left(part) // this process may have been stopped meanwhile
	}
	if left <= 0 {
		return fmt.Errorf("node %s cannot rely on its lease: %w", o.node, ErrUndecided)
	}
	return nil
}

// keepHeld lets exclusive runs go on whenever the lease was renewed.
func (o *Owner) keepHeld(ctx context.Context) {
	for ctx.Err() == nil {
		changed := o.session.changes()
		o.mu.Lock()
		holds := o.holds > 0
		o.mu.Unlock()
		if holds || o.register.isHeld() {
			if err := o.hold(ctx); err != nil && ctx.Err() == nil {
				o.log.Warn("exclusive runs of this node may end", "err", err)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
