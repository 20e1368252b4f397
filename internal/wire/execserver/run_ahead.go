package execserver

import (
	"context"
	"encoding/json"

	"github.com/spool-run/spool/internal/wire/runproto"
)

// routeStartFollow starts a run and sends its events after the answer.
func (c *conn) routeStartFollow() route {
	var f *follow
	return route{
		family: "run",
		call: func(ctx context.Context, params json.RawMessage) (any, error) {
			var p runproto.StartFollowParams
			if err := decode(params, &p, "spec", "follow"); err != nil {
				return nil, runproto.EncodeError(err)
			}
			opened := newFollowAhead(&p)
			if err := c.openFollow(ctx, opened); err != nil {
				return nil, runproto.EncodeError(err)
			}
			info, err := c.start(p.Spec)
			if err != nil {
				c.closeFollow(opened)
				return nil, runproto.EncodeError(err)
			}
			f = opened
			f.params.Run, f.last = info.ID, info.Last
			return &info, nil
		},
		after: func(any) { c.following(func() { c.follow(f) }) },
	}
}

// newFollowAhead returns the follow of a run that is about to start. It was not asked for
// yet, and has less room than its window.
func newFollowAhead(p *runproto.StartFollowParams) *follow {
	f := newFollow(runproto.FollowParams{Follow: p.Follow, Window: p.Window})
	f.closedEnds = p.ClosedEnds
	if p.Ahead > 0 {
		f.credit = min(p.Ahead, f.credit)
	}
	return f
}
