package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// routeWatch begins a watch: a follow of descriptions instead of events.
func (c *conn) routeWatch() route {
	var f *follow
	var watch func(yield func(spool.Info, error) bool)
	return route{
		family: "run",
		call: func(ctx context.Context, params json.RawMessage) (any, error) {
			var err error
			f, watch, err = c.newWatch(ctx, params)
			return struct{}{}, runproto.EncodeError(err)
		},
		after: func(any) { c.following(func() { c.watch(f, watch) }) },
	}
}

func (c *conn) newWatch(ctx context.Context, params json.RawMessage) (*follow, func(func(spool.Info, error) bool), error) {
	var p runproto.WatchParams
	if err := decode(params, &p, "follow"); err != nil {
		return nil, nil, err
	}
	watcher, ok := c.backend.(spool.Watcher)
	if !ok {
		return nil, nil, fmt.Errorf("watch runs: %w by this server", spool.ErrUnsupported)
	}
	if err := p.Filter.CheckWatch(); err != nil {
		return nil, nil, err
	}
	if p.Asks && c.more.Watch == nil {
		return nil, nil, fmt.Errorf("watch asks: %w by this server", spool.ErrUnsupported)
	}
	f := newFollow(runproto.FollowParams{Follow: p.Follow, Window: p.Window})
	if err := c.openFollow(ctx, f); err != nil {
		return nil, nil, err
	}
	if p.Asks {
		f.seen = c.more.Watch(f.ctx, p.Follow)
	}
	return f, watcher.Watch(f.ctx, p.Filter), nil
}

// watch sends descriptions of runs until the other side leaves.
func (c *conn) watch(f *follow, watch func(func(spool.Info, error) bool)) {
	defer c.closeFollow(f)
	var failed error // not sent yet: the last one ends the watch
	for info, err := range watch {
		if failed != nil && !c.sendChanged(f, nil, failed) {
			return
		}
		if failed = err; err == nil && !c.sendChanged(f, &info, nil) {
			return
		}
		if err == nil && f.seen != nil {
			f.seen(&info)
		}
	}
	if f.ctx.Err() != nil || failed != nil && c.isEnding() {
		return
	}
	end := runproto.EndParams{Follow: f.params.Follow}
	if failed != nil {
		errors.As(runproto.EncodeError(failed), &end.Error)
	}
	c.notify("run/end", end)
}

// sendChanged sends a description, or the error of one, once the other side has room.
// It reports false if that is gone.
func (c *conn) sendChanged(f *follow, info *spool.Info, failed error) bool {
	p := runproto.ChangedParams{Follow: f.params.Follow}
	if failed != nil {
		errors.As(runproto.EncodeError(failed), &p.Error)
	} else if info.ID != "" {
		p.Info = info
	}
	b, err := json.Marshal(p)
	if err != nil { // plain fields always encode
		return false
	}
	if _, ok := f.room(f.ctx); !ok {
		return false
	}
	f.spend(len(b))
	return c.rpc.Notify("run/changed", json.RawMessage(b)) == nil
}
