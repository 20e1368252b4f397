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

// Stream is Follow, but an event is only lent: what its Bytes and Data point at
// is used again for the next event. [spool.Run.Stream] uses it.
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
		case errors.As(err, &lost), errors.Is(err, spool.ErrLost):
			for _, e := range lostEvents(id, err) {
				if !yield(e, nil) {
					return
				}
			}
		default:
			yield(spool.Event{}, err)
		}
	}
}

// FollowRecords implements [record.Follower].
func (c *Client) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		f := follow{client: c, run: id, after: after, lend: true}
		f.relay = func(b []byte) bool {
			batch := record.NewBatch(b)
			return yield(&batch, nil)
		}
		if err := f.deliverAll(ctx); err != nil && !f.stopped && !f.done {
			yield(nil, err)
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

	relay func([]byte) bool // takes records in place of events, if it is set
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
func (f *follow) stream(ctx context.Context, l *connection) error {
	if f.after == 0 {
		if s := l.claim(f.run); s != nil {
			err := f.receive(ctx, s)
			if f.stopped || f.done || errors.Is(err, rpc.ErrConnClosed) || ctx.Err() != nil {
				return err
			}
			// What was sent ahead ended, perhaps long ago: the answer to a request says
			// how it is now.
		}
	}
	s, err := l.open(f.client.opts.Window)
	if err != nil {
		return err
	}
	err = l.rpc.Call(ctx, "run/follow", runproto.FollowParams{Follow: s.id, Run: f.run, After: f.after, Window: s.window}, nil)
	if err != nil {
		s.close()
		return runproto.DecodeError(err)
	}
	return f.receive(ctx, s)
}

// receive delivers what comes over a stream, and closes it.
func (f *follow) receive(ctx context.Context, s *stream) error {
	defer s.close()
	for {
		frames, ok, err := s.next(ctx)
		if !ok {
			return err
		}
		for _, frame := range frames {
			size := len(frame) - runproto.BinaryHeader
			err := f.deliver(frame)
			if f.done { // the server ends the follow with the closed event
				s.finish(nil)
			}
			if err != nil || f.stopped {
				return err
			}
			if f.lend {
				s.conn.rpc.Recycle(frame)
			}
			if f.done {
				return nil
			}
			s.consumed(int64(size))
		}
	}
}

// deliver hands on the events of one frame.
func (f *follow) deliver(frame []byte) error {
	if f.relay != nil {
		return f.deliverRecords(frame)
	}
	for b := frame[runproto.BinaryHeader:]; len(b) > 0; {
		e, n, err := record.Decode(b)
		if err != nil {
			return fmt.Errorf("run %s: event after %d: %w", f.run, f.after, err)
		}
		b = b[n:]
		if f.done || !record.Follows(e.Seq, f.after, e.Kind == spool.KindTruncated) {
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

// deliverRecords hands on the records of one frame.
func (f *follow) deliverRecords(frame []byte) error {
	records := frame[runproto.BinaryHeader:]
	last, closed, err := record.Last(records, f.after)
	if err != nil {
		return fmt.Errorf("run %s: %w", f.run, err)
	}
	f.after, f.done = last, closed
	f.stopped = !f.relay(records)
	return nil
}
