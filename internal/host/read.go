package host

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
	"github.com/spool-run/spool/internal/store"
)

// Stat implements [spool.Backend].
func (h *Host) Stat(_ context.Context, id spool.RunID) (spool.Info, error) {
	r, err := h.findExisting(id)
	if err != nil {
		return spool.Info{}, err
	}
	return r.Stat(), nil
}

// List implements [spool.Backend].
func (h *Host) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.Check(); err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			yield(spool.Info{}, spool.ErrClosed)
			return
		}
		known := make(map[spool.RunID]bool)
		var all []spool.Info
		for id, r := range h.runs {
			if !r.isStarted() || r.isRemoved() {
				continue
			}
			known[id] = true
			if info := r.Info(); f.Match(&info) {
				all = append(all, info)
			}
		}
		h.mu.Unlock()
		slices.SortFunc(all, func(a, b spool.Info) int { return f.Compare(&a, &b) })
		listed := 0
		list := func(info spool.Info) (more bool) {
			listed++
			return yield(info, nil) && listed != f.Limit
		}
		stored := func(func(spool.Info, error) bool) {}
		if h.store != nil {
			stored = h.store.Select(f)
		}
		for info, err := range MergeRuns(&f, all, known, stored) {
			switch {
			case ctx.Err() != nil:
				yield(spool.Info{}, context.Cause(ctx))
				return
			case err != nil:
				if !yield(info, err) {
					return
				}
			case !list(info):
				return
			}
		}
	}
}

// Read implements [spool.Backend].
func (h *Host) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	r, err := h.findAfter(id, q.After)
	if err != nil {
		return spool.Page{}, err
	}
	return r.read(ctx, q)
}

// FollowRecords implements [record.Follower].
func (h *Host) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		r, err := h.findAfter(id, after)
		if err != nil {
			yield(nil, err)
			return
		}
		r.enter()
		defer r.leave()
		relay := r.log.Relay()
		defer relay.Close()
		record.Pages(after, func(q spool.Query) (*record.Batch, spool.Page, error) {
			relay.Drop() // it may wait
			return r.readRecords(ctx, q, relay)
		})(yield)
	}
}

// ReadRecords implements [record.Reader].
func (h *Host) ReadRecords(ctx context.Context, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	r, err := h.findAfter(id, q.After)
	if err != nil {
		return dst, spool.Page{}, err
	}
	r.enter()
	defer r.leave()
	if q, err = r.await(ctx, q); err != nil {
		return dst, spool.Page{}, err
	}
	dst, next, err := r.log.ReadRecords(dst, q.After, q.MaxBytes)
	if err != nil {
		return dst, spool.Page{}, fmt.Errorf("run %s: %w", id, err)
	}
	return dst, spool.Page{Next: next, Info: r.Info()}, nil
}

// Sift implements [sieve.Sifter].
func (h *Host) Sift(_ context.Context, id spool.RunID, after spool.Seq, q *sieve.Query, buf []byte) ([]sieve.Part, []byte, error) {
	r, err := h.findAfter(id, after)
	if err != nil || r.journal == nil {
		return nil, buf, err
	}
	r.enter()
	defer r.leave()
	return r.journal.Sift(after, q, buf)
}

// Await waits until there is an event after a cursor or the run is closed. It
// returns the description of the run, the end of the log in its files, and the
// events that are in memory.
func (h *Host) Await(ctx context.Context, id spool.RunID, after spool.Seq, maxBytes int) (spool.Page, store.Position, error) {
	r, err := h.find(id)
	if err != nil {
		return spool.Page{}, store.Position{}, err
	}
	if err := r.log.Wait(ctx, after); err != nil {
		return spool.Page{}, store.Position{}, err
	}
	page := r.recent(after, maxBytes)
	if r.journal == nil {
		return page, store.Position{}, nil
	}
	// Taken after the page: the files hold at least these events, unless the
	// end of the log did not fit on the disk.
	at := r.journal.Position()
	if at.Last < page.Info.Last && r.isDone() {
		page = r.recent(max(after, at.Last), maxBytes)
	}
	return page, at, nil
}

// OnEvent has f called once, when there is an event after a cursor or the run is closed,
// on the goroutine that appends it. f must not block. After stop it is not called any
// more, unless it is being called. If that is so already, stop is nil and f is not called.
func (h *Host) OnEvent(_ context.Context, id spool.RunID, after spool.Seq, f func()) (stop func(), err error) {
	r, err := h.find(id)
	if err != nil {
		return nil, err
	}
	if last, sealed := r.log.Last(); last > after || sealed {
		return nil, nil
	}
	return r.log.Watch(after, f), nil
}

// Knows reports whether the run is one that methods find without waiting: it has started,
// and is in memory.
func (h *Host) Knows(id spool.RunID) bool {
	h.mu.Lock()
	r, ok := h.runs[id]
	h.mu.Unlock()
	return ok && r.isStarted()
}

// LiveRuns describes the runs of this host that are starting or not closed.
func (h *Host) LiveRuns() []spool.Info {
	h.mu.Lock()
	defer h.mu.Unlock()
	var live []spool.Info
	for _, r := range h.runs {
		if !r.isDone() {
			live = append(live, r.Info())
		}
	}
	return live
}

// Follow implements [spool.Backend].
func (h *Host) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		r, err := h.findAfter(id, after)
		if err != nil {
			yield(spool.Event{}, err)
			return
		}
		r.follow(ctx, after, yield)
	}
}

// Stream is Follow, but an event is only lent. [spool.Run.Stream] uses it.
func (h *Host) Stream(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return record.Events(id, h.FollowRecords(ctx, id, after))
}

// Send implements [spool.Backend].
func (h *Host) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	r, err := h.find(id)
	if err != nil {
		return spool.Receipt{}, err
	}
	return r.send(ctx, in)
}

// Control implements [spool.Backend].
func (h *Host) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	r, err := h.find(id)
	if err != nil {
		return err
	}
	return r.control(ctx, c)
}

// Blob implements [spool.Backend].
func (h *Host) Blob(_ context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	if err := store.CheckDigest(d); err != nil {
		return nil, err
	}
	if _, err := h.findExisting(id); err != nil {
		return nil, err
	}
	if h.store == nil {
		return nil, fmt.Errorf("blob %s: %w", d, spool.ErrNotFound)
	}
	return h.store.Blob(d)
}
