package access

import (
	"context"

	"github.com/spool-run/spool"
)

// Count implements [spool.Counter]. A subject that does not see all runs counts its
// own.
func (b *backend) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	if err := b.subject.Scopes.Require(Read); err != nil {
		return nil, b.deny(ActList, "", err)
	}
	if counter, ok := b.inner.(spool.Counter); ok && b.subject.Scopes.Has(Admin) {
		return counter.Count(ctx, f)
	}
	f.Oldest, f.Limit, f.After = false, 0, ""
	counts := make(map[spool.State]int)
	for info, err := range b.List(ctx, f) {
		if err != nil {
			return nil, err
		}
		counts[info.State]++
	}
	return counts, nil
}
