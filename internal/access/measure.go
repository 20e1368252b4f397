package access

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
)

// Measure implements [spool.Meter]. A subject that does not see all runs gets what
// its own use.
func (b *backend) Measure(ctx context.Context, ids []spool.RunID) ([]spool.Resources, error) {
	meter, ok := b.inner.(spool.Meter)
	if !ok {
		return nil, fmt.Errorf("measure runs: %w by this server", spool.ErrUnsupported)
	}
	if err := b.subject.Scopes.Require(Read); err != nil {
		return nil, b.deny(ActRead, "", err)
	}
	if len(ids) == 0 {
		if b.subject.Scopes.Has(Admin) {
			return meter.Measure(ctx, nil)
		}
		for info, err := range b.List(ctx, spool.Filter{Live: true}) {
			if err != nil {
				return nil, err
			}
			ids = append(ids, info.ID)
		}
		if len(ids) == 0 {
			return nil, nil
		}
		return meter.Measure(ctx, ids)
	}
	for _, id := range ids {
		if _, err := b.enter(ctx, ActRead, Read, id); err != nil {
			return nil, err
		}
	}
	return meter.Measure(ctx, ids)
}
