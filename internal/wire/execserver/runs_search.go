package execserver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
	"github.com/spool-run/spool/search"
)

// searchRoom is the room that a page of run/search needs at first.
const searchRoom = 1 << 20

func (c *conn) runSearch(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.SearchParams
	if err := decode(params, &p, "pattern"); err != nil {
		return nil, err
	}
	return c.large(ctx, searchRoom, func() (any, error) {
		page, err := search.Search(ctx, c.backend, p.Query)
		if err != nil {
			return nil, err
		}
		result := runproto.SearchResult{Hits: page.Hits, Next: page.Next, Bytes: page.Bytes}
		if result.Hits == nil {
			result.Hits = []search.Hit{}
		}
		for _, err := range page.Errors {
			var e *rpc.Error
			if errors.As(runproto.EncodeError(err), &e) {
				result.Errors = append(result.Errors, e)
			}
		}
		return result, nil
	})
}
