package execserver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// changesBytes is about how large a page of run/changes is. A single patch may be
// larger.
const changesBytes = 1 << 20

func (c *conn) runChanges(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.ChangesParams
	if err := decode(params, &p, "run"); err != nil {
		return nil, err
	}
	b, err := power[spool.Workspaces](c, "run/changes")
	if err != nil {
		return nil, err
	}
	q := spool.ChangeQuery{Patch: p.Patch, After: string(p.After), MaxBytes: p.MaxBytes}
	if q.MaxBytes <= 0 || q.MaxBytes > changesBytes {
		q.MaxBytes = changesBytes
	}
	return c.large(ctx, int64(q.MaxBytes), func() (any, error) { return b.Changes(ctx, p.Run, q) })
}

func (c *conn) runApply(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.ApplyParams
	if err := decode(params, &p, "run"); err != nil {
		return nil, err
	}
	b, err := power[spool.Workspaces](c, "run/apply")
	if err != nil {
		return nil, err
	}
	for _, path := range p.Bytes {
		p.Paths = append(p.Paths, string(path))
	}
	return c.large(ctx, changesBytes, func() (any, error) {
		page, err := b.Apply(ctx, p.Run, p.Paths, p.Dry)
		result := runproto.ApplyResult{ChangePage: page}
		if errors.Is(err, spool.ErrExists) && errors.As(runproto.EncodeError(err), &result.Error) {
			err = nil // the changes say which conflict
		}
		return result, err
	})
}

func (c *conn) runDiscard(ctx context.Context, params json.RawMessage) (any, error) {
	var p runproto.RunParams
	if err := decode(params, &p, "run"); err != nil {
		return nil, err
	}
	b, err := power[spool.Workspaces](c, "run/discard")
	if err != nil {
		return nil, err
	}
	return struct{}{}, b.Discard(ctx, p.Run)
}
