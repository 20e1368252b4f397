package host

import (
	"context"
	"iter"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

var _ spool.Counter = (*Host)(nil)

// Count implements [spool.Counter].
func (h *Host) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	f = CountFilter(f)
	if h.store == nil || f.Check() != nil || !store.Countable(&f) {
		return CountList(h.List(ctx, f))
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, spool.ErrClosed
	}
	live := make(map[spool.RunID]spool.Info)
	for id, r := range h.runs {
		if r.isStarted() && !r.isDone() {
			live[id] = r.Info()
		}
	}
	h.mu.Unlock()
	return CountStored(h.store, &f, live, nil)
}

// CountFilter returns a filter without what does not matter for counting.
func CountFilter(f spool.Filter) spool.Filter {
	f.Oldest, f.Limit, f.After = false, 0, ""
	return f
}

// CountList counts the runs of a list.
func CountList(list iter.Seq2[spool.Info, error]) (map[spool.State]int, error) {
	counts := make(map[spool.State]int)
	for info, err := range list {
		switch {
		case err == nil:
			counts[info.State]++
		case info.ID == "": // not of one run
			return nil, err
		}
	}
	return counts, nil
}

// CountStored counts live runs and those of a store by their state. Now, which may
// be nil, returns the present description of a run whose files say that it has not
// ended.
func CountStored(s *store.Store, f *spool.Filter, live map[spool.RunID]spool.Info, now func(spool.Info) spool.Info) (map[spool.State]int, error) {
	counts := make(map[spool.State]int)
	count := func(info *spool.Info) {
		if f.Match(info) {
			counts[info.State]++
		}
	}
	for _, info := range live {
		count(&info)
	}
	filed, err := s.Count(func(info spool.Info) {
		if _, ok := live[info.ID]; ok {
			return
		}
		if now != nil && info.State != spool.StateClosed {
			info = now(info)
		}
		count(&info)
	})
	if err != nil {
		return nil, err
	}
	closed := spool.Info{State: spool.StateClosed}
	if filed > 0 && f.Match(&closed) {
		counts[spool.StateClosed] += filed
	}
	return counts, nil
}
