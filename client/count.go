package client

import (
	"context"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

var _ spool.Counter = (*Client)(nil)

// Count implements [spool.Counter]. It lists the runs of an older server.
func (c *Client) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	f.Oldest, f.Limit, f.After = false, 0, ""
	var page runproto.ListResult
	if err := c.call(ctx, "run/list", runproto.ListParams{Filter: f, Count: true}, &page); err != nil {
		return nil, err
	}
	counts := make(map[spool.State]int)
	if page.Counts != nil {
		for state, n := range page.Counts {
			if n > 0 {
				counts[state] = n
			}
		}
		return counts, nil
	}
	for info, err := range c.List(ctx, f) {
		if err != nil {
			return nil, err
		}
		counts[info.State]++
	}
	return counts, nil
}
