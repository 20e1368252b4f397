package client

import (
	"context"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

var _ spool.Workspaces = (*Client)(nil)

// Changes implements [spool.Workspaces]. The pages of a server are about 1 MiB large.
func (c *Client) Changes(ctx context.Context, id spool.RunID, q spool.ChangeQuery) (spool.ChangePage, error) {
	var page spool.ChangePage
	err := c.callNew(ctx, "run/changes", runproto.ChangesParams{Run: id, Patch: q.Patch, After: []byte(q.After), MaxBytes: q.MaxBytes}, &page)
	return page, err
}

// Apply implements [spool.Workspaces], on the machine of the server. A request that is
// repeated after a lost connection finds no change to apply if the first one arrived.
func (c *Client) Apply(ctx context.Context, id spool.RunID, paths []string, dry bool) (spool.ChangePage, error) {
	params := runproto.ApplyParams{Run: id, Dry: dry}
	for _, path := range paths {
		if utf8.ValidString(path) {
			params.Paths = append(params.Paths, path)
		} else {
			params.Bytes = append(params.Bytes, []byte(path))
		}
	}
	var result runproto.ApplyResult
	err := c.callNew(ctx, "run/apply", params, &result)
	if err == nil && result.Error != nil {
		err = runproto.DecodeError(result.Error)
	}
	return result.ChangePage, err
}

// Discard implements [spool.Workspaces].
func (c *Client) Discard(ctx context.Context, id spool.RunID) error {
	return c.callNew(ctx, "run/discard", runproto.RunParams{Run: id}, &struct{}{})
}
