package cli

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// listEvery is the time between two lists of a watched list, for what a backend did not
// tell. Between them the backend tells what changes.
const listEvery = 10 * time.Second

// watch shows the list until a signal, again when it changes.
func (l *runList) watch(ctx context.Context, b spool.Backend) error {
	ctx, cancel := context.WithCancel(ctx)
	w := &watchedList{list: l, changed: make(chan struct{}, 1)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if watcher, ok := b.(spool.Watcher); ok {
		wg.Go(func() { w.follow(ctx, watcher) })
	}
	return l.app.refresh(ctx, w.changed, func(ctx context.Context, cols int) (string, error) {
		runs, err := w.now(ctx, b)
		if err != nil {
			return "", err
		}
		return l.show(runs, cols, colour(l.app.stdout))
	})
}

// watchedList is a list of runs that is kept up to date.
type watchedList struct {
	list    *runList
	changed chan struct{}

	mu      sync.Mutex
	live    bool // the backend tells what changes
	listed  time.Time
	runs    []spool.Info
	listing bool
	missed  []spool.Info // changes since the list began
}

// follow takes the changes that the backend tells.
func (w *watchedList) follow(ctx context.Context, watcher spool.Watcher) {
	f := w.list.filter
	if !w.list.chosen {
		f.Live = true // those that have ended do not change
	}
	for info, err := range watcher.Watch(ctx, f) {
		if err != nil {
			continue // the list tells it, too
		}
		w.mu.Lock()
		switch {
		case info.ID == "": // from here on, changes are told
			w.live, w.listed = true, time.Time{}
		case w.live:
			w.take(info)
			if w.listing {
				w.missed = append(w.missed, info)
			}
		}
		w.mu.Unlock()
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
	w.mu.Lock()
	w.live = false
	w.mu.Unlock()
}

// take puts a run into the list as it is now, or takes it out. Callers hold w.mu.
func (w *watchedList) take(info spool.Info) {
	l := w.list
	w.runs = slices.DeleteFunc(slices.Clone(w.runs), func(o spool.Info) bool { return o.ID == info.ID })
	if info.State == spool.StateRemoved || !l.filter.Match(&info) || l.match != nil && !l.match(&info) {
		return
	}
	w.runs = append(w.runs, info)
	slices.SortFunc(w.runs, func(a, b spool.Info) int { return l.filter.Compare(&a, &b) })
	if last := l.options.last; last > 0 && len(w.runs) > last {
		w.runs = w.runs[:last]
	}
	if l.sort != nil {
		slices.SortStableFunc(w.runs, l.sort)
	}
}

// now returns the runs. It lists them now and then, and each time if nobody tells what
// changes.
func (w *watchedList) now(ctx context.Context, b spool.Backend) ([]spool.Info, error) {
	w.mu.Lock()
	runs, fresh := w.runs, w.live && time.Since(w.listed) < listEvery
	if !fresh {
		w.listing, w.listed = true, time.Now()
	}
	w.mu.Unlock()
	if fresh {
		return runs, nil
	}
	runs, _, err := w.list.runs(ctx, b)
	w.mu.Lock()
	defer w.mu.Unlock()
	missed := w.missed
	w.listing, w.missed = false, nil
	if err != nil {
		return nil, err
	}
	w.runs = runs
	for _, info := range missed {
		w.take(info)
	}
	return w.runs, nil
}
