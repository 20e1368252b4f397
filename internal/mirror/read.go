package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Reader is the copies as a backend that only reads, for the other machines. A run that
// has no copy is [spool.ErrNotFound].
//
// The description of a run is the one that was copied. Its Last is the highest event that
// the machine of the run is known to have had, and its Mirror has the last that is here. A
// reader of a copy that is not complete gets [spool.ErrLost] where it ends.
type Reader struct {
	copies *Copies
	self   string
}

var (
	_ spool.Backend   = (*Reader)(nil)
	_ record.Follower = (*Reader)(nil)
)

// Reader returns the copies for readers; self is the name of this machine.
func (c *Copies) Reader(self string) *Reader { return &Reader{c, self} }

// errReadOnly says that a copy is not the run.
var errReadOnly = fmt.Errorf("copies of logs are only read: %w", spool.ErrUnsupported)

// Start implements [spool.Backend].
func (r *Reader) Start(context.Context, spool.Spec) (spool.Info, error) {
	return spool.Info{}, errReadOnly
}

// Send implements [spool.Backend].
func (r *Reader) Send(context.Context, spool.RunID, spool.Input) (spool.Receipt, error) {
	return spool.Receipt{}, errReadOnly
}

// Control implements [spool.Backend].
func (r *Reader) Control(context.Context, spool.RunID, spool.Control) error { return errReadOnly }

// List implements [spool.Backend]. It lists nothing: the runs are not of this machine.
func (r *Reader) List(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	return func(func(spool.Info, error) bool) {}
}

func (r *Reader) find(id spool.RunID) (*Copy, error) {
	cp := r.copies.get(id)
	if cp == nil {
		return nil, fmt.Errorf("copy of run %.140s: %w", id, spool.ErrNotFound)
	}
	return cp, nil
}

// info describes the run of a copy.
func (r *Reader) info(cp *Copy) spool.Info {
	info := cp.journal.Info()
	last, _ := cp.journal.Last()
	info.Mirror = &spool.Mirror{Node: r.self, Last: last}
	cp.mu.Lock()
	info.Last = max(last, cp.heard)
	cp.mu.Unlock()
	return info
}

// Stat implements [spool.Backend].
func (r *Reader) Stat(_ context.Context, id spool.RunID) (spool.Info, error) {
	cp, err := r.find(id)
	if err != nil {
		return spool.Info{}, err
	}
	return r.info(cp), nil
}

// Read implements [spool.Backend]. It does not wait.
func (r *Reader) Read(_ context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	cp, err := r.find(id)
	if err != nil {
		return spool.Page{}, err
	}
	size := q.MaxBytes
	if size <= 0 {
		size = spool.DefaultPageBytes
	}
	page := spool.Page{Next: q.After}
	if page.Events, err = cp.journal.Read(nil, q.After, size); err != nil {
		return spool.Page{}, err
	}
	if n := len(page.Events); n > 0 {
		page.Next = page.Events[n-1].Seq
	}
	page.Info = r.info(cp)
	return page, nil
}

// Follow implements [spool.Backend].
func (r *Reader) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		for {
			page, err := r.Read(ctx, id, spool.Query{After: after, MaxBytes: record.BatchBytes})
			if err == nil {
				err = r.end(id, &page)
			}
			for i := range page.Events {
				if !yield(page.Events[i], nil) {
					return
				}
			}
			if after = page.Next; err != nil {
				if !errors.Is(err, io.EOF) {
					yield(spool.Event{}, err)
				}
				return
			}
		}
	}
}

// FollowRecords implements [record.Follower].
func (r *Reader) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		cp, err := r.find(id)
		if err != nil {
			yield(nil, err)
			return
		}
		var dst []byte
		for ctx.Err() == nil {
			var last spool.Seq
			if dst, last, err = cp.journal.ReadRecords(dst[:0], after, record.BatchBytes); err != nil {
				yield(nil, err)
				return
			}
			if last == after { // a gap, or the end
				page, err := r.Read(ctx, id, spool.Query{After: after, MaxBytes: record.BatchBytes})
				for i := 0; err == nil && i < len(page.Events); i++ {
					dst, err = record.Append(dst, &page.Events[i])
				}
				if err == nil && len(page.Events) == 0 {
					err = r.end(id, &page)
				}
				if err != nil {
					if !errors.Is(err, io.EOF) {
						yield(nil, err)
					}
					return
				}
				last = page.Next
			}
			after = last
			if b := record.NewBatch(dst); b.Size() > 0 && !yield(&b, nil) {
				return
			}
		}
		yield(nil, context.Cause(ctx))
	}
}

// end returns io.EOF at the end of a log, and spool.ErrLost at the end of a copy that is
// not complete.
func (r *Reader) end(id spool.RunID, page *spool.Page) error {
	switch {
	case page.Next < page.Info.Mirror.Last:
		return nil
	case page.Info.State == spool.StateClosed && page.Next >= page.Info.Last:
		return io.EOF
	}
	return fmt.Errorf("the copy of run %s ends with event %d: %w", id, page.Info.Mirror.Last, spool.ErrLost)
}

// Blob implements [spool.Backend].
func (r *Reader) Blob(_ context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	cp, err := r.find(id)
	if err != nil {
		return nil, err
	}
	return cp.store.Blob(d)
}
