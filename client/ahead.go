package client

import (
	"context"
	"errors"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// A server sends the first events of a run with the answer to its start, because
// most programs read what they start. They wait in a stream for the first reader.
const (
	aheadBytes   = 64 << 10 // of each run
	aheadStreams = 32       // of a connection; the oldest gives way
)

// start starts a run, and has its events sent ahead if the server can.
func (l *connection) start(ctx context.Context, spec spool.Spec, window int64) (spool.Info, error) {
	var info spool.Info
	l.mu.Lock()
	old := l.old
	l.mu.Unlock()
	if !old {
		err := l.startAhead(ctx, &spec, window, &info)
		var e *rpc.Error
		if !errors.As(err, &e) || e.Code != rpc.CodeMethodNotFound {
			return info, err
		}
		l.mu.Lock()
		l.old = true
		l.mu.Unlock()
	}
	err := l.rpc.Call(ctx, "run/start", spec, &info)
	return info, err
}

func (l *connection) startAhead(ctx context.Context, spec *spool.Spec, window int64, info *spool.Info) error {
	encoded, err := rpc.Encode(spec)
	if err != nil {
		return err
	}
	s, err := l.open(window)
	if err != nil {
		return err
	}
	ahead := min(aheadBytes, window)
	err = l.rpc.Call(ctx, "run/start_follow", runproto.StartFollowParams{Spec: encoded, Follow: s.id, Window: window, Ahead: ahead, ClosedEnds: true}, info)
	if err != nil {
		s.close()
		return err
	}
	s.run, s.unread = info.ID, window-ahead
	l.keep(s)
	return nil
}

// keep adds a stream to those that wait for a reader.
func (l *connection) keep(s *stream) {
	l.mu.Lock()
	l.ahead = append(l.ahead, s)
	var oldest *stream
	if len(l.ahead) > aheadStreams {
		oldest = l.ahead[0]
		l.ahead = slices.Delete(l.ahead, 0, 1)
	}
	l.mu.Unlock()
	if oldest != nil {
		oldest.close()
	}
}

// claim returns the stream that waits for a reader of a run, or nil. The caller
// closes it.
func (l *connection) claim(run spool.RunID) *stream {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.ahead, func(s *stream) bool { return s.run == run })
	if i < 0 {
		return nil
	}
	s := l.ahead[i]
	l.ahead = slices.Delete(l.ahead, i, i+1)
	return s
}

// drop closes the streams of runs that are no more.
func (c *Client) drop(runs []spool.RunID) {
	c.mu.Lock()
	l := c.conn
	c.mu.Unlock()
	if l == nil {
		return
	}
	for _, id := range runs {
		if s := l.claim(id); s != nil {
			s.close()
		}
	}
}
