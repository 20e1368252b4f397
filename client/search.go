package client

import (
	"context"

	"github.com/spool-run/spool/internal/wire/runproto"
	"github.com/spool-run/spool/search"
)

// Search returns one page of a search in the runs of the server. The server searches.
func (c *Client) Search(ctx context.Context, q search.Query) (search.Page, error) {
	var result runproto.SearchResult
	if err := c.callNew(ctx, "run/search", runproto.SearchParams{Query: q}, &result); err != nil {
		return search.Page{}, err
	}
	page := search.Page{Hits: result.Hits, Next: result.Next, Bytes: result.Bytes}
	for _, e := range result.Errors {
		page.Errors = append(page.Errors, runproto.DecodeError(e))
	}
	return page, nil
}
