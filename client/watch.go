package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

var _ spool.Watcher = (*Client)(nil)

// Watch implements [spool.Watcher]. The error is [spool.ErrUnsupported] with an older
// server.
func (c *Client) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.CheckWatch(); err != nil {
			yield(spool.Info{}, err)
			return
		}
		for {
			l, err := c.connected(ctx)
			left := false
			if err == nil {
				left, err = c.watch(ctx, l, f, yield)
			}
			if left {
				return
			}
			if errors.Is(err, rpc.ErrConnClosed) && ctx.Err() == nil {
				continue
			}
			if err != nil {
				yield(spool.Info{}, err)
			}
			return
		}
	}
}

// watch yields what comes over one connection. It reports whether the reader left.
func (c *Client) watch(ctx context.Context, l *connection, f spool.Filter, yield func(spool.Info, error) bool) (left bool, err error) {
	s, err := l.open(c.opts.Window)
	if err != nil {
		return false, err
	}
	defer s.close()
	err = l.rpc.Call(ctx, "run/watch", runproto.WatchParams{Follow: s.id, Filter: f, Window: s.window}, nil)
	var answer *rpc.Error
	if errors.As(err, &answer) && answer.Code == rpc.CodeMethodNotFound {
		return false, fmt.Errorf("watch runs: %w by this server", spool.ErrUnsupported)
	}
	if err != nil {
		return false, runproto.DecodeError(err)
	}
	for {
		frames, ok, err := s.next(ctx)
		if !ok {
			return false, err
		}
		for _, frame := range frames {
			var p runproto.ChangedParams
			if err := json.Unmarshal(frame, &p); err != nil {
				return false, fmt.Errorf("watch runs: %w", err)
			}
			var info spool.Info
			if p.Info != nil {
				info = *p.Info
			}
			var failed error
			if p.Error != nil {
				failed = runproto.DecodeError(p.Error)
			}
			if !yield(info, failed) {
				return true, nil
			}
			s.consumed(int64(len(frame)))
		}
	}
}
