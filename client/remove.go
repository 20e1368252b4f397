package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

var (
	_ spool.Remover        = (*Client)(nil)
	_ spool.Meter          = (*Client)(nil)
	_ spool.StorageGrouper = (*Client)(nil)
	_ spool.Renamer        = (*Client)(nil)
	_ spool.Inspector      = (*Client)(nil)
)

// Remove implements [spool.Remover]. A request that is repeated after a lost
// connection fails with [spool.ErrNotFound] if the first one arrived.
func (c *Client) Remove(ctx context.Context, ids []spool.RunID, dry bool) (spool.Removal, error) {
	var removal spool.Removal
	err := c.callNew(ctx, "run/remove", runproto.RemoveParams{Runs: ids, Dry: dry}, &removal)
	if !dry {
		c.drop(removal.Runs)
	}
	return removal, err
}

// Storage implements [spool.Remover].
func (c *Client) Storage(ctx context.Context) (spool.Storage, error) { return c.StorageBy(ctx, "") }

// StorageBy implements [spool.StorageGrouper].
func (c *Client) StorageBy(ctx context.Context, by string) (spool.Storage, error) {
	var st spool.Storage
	err := c.callNew(ctx, "run/storage", runproto.StorageParams{By: by}, &st)
	if err == nil && st.By != by {
		err = fmt.Errorf("run/storage by %s: %w: the server is an older version of spool", by, spool.ErrUnsupported)
	}
	return st, err
}

// Rename implements [spool.Renamer].
func (c *Client) Rename(ctx context.Context, id spool.RunID, name string) (spool.Info, error) {
	var info spool.Info
	err := c.callNew(ctx, "run/rename", runproto.RenameParams{Run: id, Name: name}, &info)
	return info, err
}

// Inspect implements [spool.Inspector].
func (c *Client) Inspect(ctx context.Context, id spool.RunID, question json.RawMessage) (json.RawMessage, error) {
	var answer json.RawMessage
	err := c.callNew(ctx, "run/inspect", runproto.InspectParams{Run: id, Question: question}, &answer)
	return answer, err
}

// Measure implements [spool.Meter].
func (c *Client) Measure(ctx context.Context, ids []spool.RunID) ([]spool.Resources, error) {
	var result runproto.MeasureResult
	err := c.callNew(ctx, "run/measure", runproto.MeasureParams{Runs: ids}, &result)
	return result.Runs, err
}

// callNew is call for a method that older servers do not know.
func (c *Client) callNew(ctx context.Context, method string, params, result any) error {
	err := c.call(ctx, method, params, result)
	var e *rpc.Error
	if errors.As(err, &e) && e.Code == rpc.CodeMethodNotFound {
		return fmt.Errorf("%s: %w: the server is an older version of spool", method, spool.ErrUnsupported)
	}
	return err
}
