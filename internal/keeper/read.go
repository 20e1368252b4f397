package keeper

import (
	"context"
	"fmt"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
)

// Read implements [spool.Backend].
func (b *Backend) Read(ctx context.Context, id spool.RunID, q spool.Query) (page spool.Page, err error) {
	m, err := b.mirrorAfter(ctx, id, q.After)
	if err == nil {
		err = m.read(ctx, q, &page)
	}
	return page, err
}

// FollowRecords implements [record.Follower].
func (b *Backend) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		m, err := b.mirrorAfter(ctx, id, after)
		if err != nil {
			yield(nil, err)
			return
		}
		m.addReader()
		defer m.removeReader()
		r := m.log.Relay()
		defer r.Close()
		record.Pages(after, func(q spool.Query) (*record.Batch, spool.Page, error) {
			r.Drop() // it may wait
			return m.readRecords(ctx, q, r)
		})(yield)
	}
}

// ReadRecords implements [record.Reader].
func (b *Backend) ReadRecords(ctx context.Context, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	m, err := b.mirrorAfter(ctx, id, q.After)
	if err != nil {
		return dst, spool.Page{}, err
	}
	m.addReader()
	defer m.removeReader()
	if q, err = m.await(ctx, q); err != nil {
		return dst, spool.Page{}, err
	}
	dst, next, err := m.log.ReadRecords(dst, q.After, q.MaxBytes)
	if err != nil {
		return dst, spool.Page{}, fmt.Errorf("run %s: %w", id, err)
	}
	return dst, spool.Page{Next: next, Info: m.description()}, nil
}

// Sift implements [sieve.Sifter].
func (b *Backend) Sift(ctx context.Context, id spool.RunID, after spool.Seq, q *sieve.Query, buf []byte) ([]sieve.Part, []byte, error) {
	m, err := b.mirrorAfter(ctx, id, after)
	if err != nil {
		return nil, buf, err
	}
	m.addReader()
	defer m.removeReader()
	return m.journal.Sift(after, q, buf)
}

// Follow implements [spool.Backend].
func (b *Backend) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		m, err := b.mirrorAfter(ctx, id, after)
		if err != nil {
			yield(spool.Event{}, err)
			return
		}
		m.follow(ctx, after, yield)
	}
}

// Stream is Follow, but an event is only lent. [spool.Run.Stream] uses it.
func (b *Backend) Stream(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return record.Events(id, b.FollowRecords(ctx, id, after))
}
