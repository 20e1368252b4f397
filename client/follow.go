package client

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// Follow implements [spool.Backend].
func (c *Client) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return c.follow(ctx, id, after, false)
}

// Stream implements [spool.Streamer].
func (c *Client) Stream(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return c.follow(ctx, id, after, true)
}

func (c *Client) follow(ctx context.Context, id spool.RunID, after spool.Seq, lend bool) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		f := follow{client: c, run: id, after: after, yield: yield, lend: lend}
		err := f.deliverAll(ctx)
		var lost *DisconnectedError
		switch {
		case err == nil || f.stopped || f.done: // what comes after the closed event does not matter
		case errors.As(err, &lost):
			for _, e := range lostEvents(id, lost) {
				if !yield(e, nil) {
					return
				}
			}
		default:
			yield(spool.Event{}, err)
		}
	}
}

// follow is one reader: a cursor that outlives connections.
type follow struct {
	client  *Client
	run     spool.RunID
	after   spool.Seq
	yield   func(spool.Event, error) bool
	stopped bool // the reader left
	done    bool // the closed event was delivered
	lend    bool // events are only lent to the reader
}

// deliverAll delivers events until the run is closed or the reader leaves.
func (f *follow) deliverAll(ctx context.Context) error {
	for {
		l, err := f.client.connected(ctx)
		if err != nil {
			return err
		}
		err = f.stream(ctx, l)
		if f.stopped || f.done || !errors.Is(err, rpc.ErrConnClosed) || ctx.Err() != nil {
			return err
		}
	}
}

// stream delivers what comes over one connection.
func (f *follow) stream(ctx context.Context, l *link) error {
	s, err := l.open(f.client.opts.Window)
	if err != nil {
		return err
	}
	defer s.close()
	err = l.rpc.Call(ctx, "run/follow", runproto.FollowParams{Follow: s.id, Run: f.run, After: f.after, Window: s.window}, nil)
	if err != nil {
		return runproto.DecodeError(err)
	}
	for {
		frames, ok, err := s.next(ctx)
		if !ok {
			return err
		}
		for _, frame := range frames {
			records := frame[runproto.BinaryHeader:]
			if err := f.deliver(records); err != nil || f.stopped {
				return err
			}
			s.consumed(int64(len(records)))
			if f.lend {
				l.rpc.Recycle(frame)
			}
		}
	}
}

// deliver hands on the events of one frame.
func (f *follow) deliver(frame []byte) error {
	for len(frame) > 0 {
		e, n, err := record.Decode(frame)
		if err != nil {
			return fmt.Errorf("run %s: event after %d: %w", f.run, f.after, err)
		}
		frame = frame[n:]
		if e.Seq != f.after+1 && e.Kind != spool.KindTruncated {
			return fmt.Errorf("run %s: event %d came after %d", f.run, e.Seq, f.after)
		}
		e.Run, f.after = f.run, e.Seq
		f.done = e.Kind == spool.KindClosed
		if !f.yield(e, nil) {
			f.stopped = true
			return nil
		}
	}
	return nil
}
