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
			opened, err := c.openFollow(ctx, runproto.FollowParams{Follow: p.Follow, Window: p.Window})
			if err != nil {
				return nil, runproto.EncodeError(err)
			}
			info, err := c.start(p.Spec)
			if err != nil {
				c.closeFollow(opened)
				return nil, runproto.EncodeError(err)
			}
			f = opened
			f.begin(p.Ahead)
			f.params.Run, f.last, f.closedEnds = info.ID, info.Last, p.ClosedEnds
			return &info, nil
		},
		after: func(any) { c.following(func() { c.follow(f) }) },
	}
}

// begin gives a follow that was not asked for less room than its window.
func (f *follow) begin(ahead int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ahead > 0 {
		f.credit = min(ahead, f.credit)
	}
}
