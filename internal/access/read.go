package access

import (
	"context"
	"errors"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Read implements [spool.Backend].
func (b *backend) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	gone, err := b.enterPage(ctx, id)
	if err != nil {
		return spool.Page{}, err
	}
	page, err := b.inner.Read(ctx, id, q)
	if err != nil {
		return page, err
	}
	if gone && !b.owns(&page.Info) {
		return spool.Page{}, notFound(id)
	}
	if b.account != nil {
		size := 0
		for i := range page.Events {
			size += page.Events[i].Size()
		}
		err = b.pay(ctx, size)
	}
	return page, err
}

// enterPage is enterRead for a reader of pages, who may go on in a run that was
// removed: gone says that the page tells whose it was.
func (b *backend) enterPage(ctx context.Context, id spool.RunID) (gone bool, err error) {
	err = b.enterRead(ctx, id)
	if !errors.Is(err, spool.ErrNotFound) {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.read[id] {
		return false, err
	}
	return true, nil
}

// enterRead checks a read, and writes the first one of a run to the audit log.
func (b *backend) enterRead(ctx context.Context, id spool.RunID) error {
	if _, err := b.enter(ctx, ActRead, Read, id); err != nil {
		return err
	}
	b.mu.Lock()
	known := b.read[id]
	if len(b.read) >= maxNoted {
		clear(b.read)
	}
	b.read[id] = true
	b.mu.Unlock()
	if !known {
		b.note(Entry{Act: ActRead, Run: id})
	}
	return nil
}

// Follow implements [spool.Backend].
func (b *backend) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		if err := b.enterRead(ctx, id); err != nil {
			yield(spool.Event{}, err)
			return
		}
		follow := b.inner.Follow(ctx, id, after)
		if !b.isPaced() {
			follow(yield)
			return
		}
		for e, err := range follow {
			if err == nil {
				err = b.pay(ctx, e.Size())
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// FollowRecords implements [record.Follower].
func (b *backend) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		if err := b.enterRead(ctx, id); err != nil {
			yield(nil, err)
			return
		}
		follow := record.Follow(ctx, b.inner, id, after)
		if !b.isPaced() {
			follow(yield)
			return
		}
		for batch, err := range follow {
			if err == nil {
				batch.Drop() // paying may take a while
				err = b.pay(ctx, batch.Size())
			}
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}
