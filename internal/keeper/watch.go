package keeper

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/store"
)

// discoverEvery is the time between two looks for keepers that other processes
// started.
const discoverEvery = time.Second

var _ spool.Watcher = (*Backend)(nil)

// Watch implements [spool.Watcher]. Each keeper tells what changes; the files tell of
// the runs of keepers that came or went meanwhile.
func (b *Backend) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.CheckWatch(); err != nil {
			yield(spool.Info{}, err)
			return
		}
		if b.isClosed() {
			yield(spool.Info{}, spool.ErrClosed)
			return
		}
		ctx, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(b.ctx, func() { cancel(spool.ErrClosed) })
		w := &watch{backend: b, ctx: ctx, chosen: host.NewSelection(f), filter: f, known: make(map[string]bool), told: make(chan told)}
		defer w.wg.Wait()
		defer func() { stop(); cancel(nil) }()
		w.run(yield)
	}
}

// watch is one watcher.
type watch struct {
	backend *Backend
	ctx     context.Context
	filter  spool.Filter
	chosen  *host.Selection
	known   map[string]bool // keepers that are watched
	told    chan told
	wg      sync.WaitGroup
}

// told is what the watcher of a keeper learned.
type told struct {
	owner string
	runs  []spool.Info
	// since asks for the runs of the keeper that live or ended since then: it
	// came, went, or forgot some.
	since time.Time
	gone  bool
}

func (w *watch) run(yield func(spool.Info, error) bool) {
	removed, err := w.backend.store.Removals()
	if err != nil {
		yield(spool.Info{}, err)
		return
	}
	defer func() { _ = removed.Close() }() // it is only read
	came := w.backend.nextKeeper()
	versions, err := w.discover(nil)
	if err != nil {
		yield(spool.Info{}, err)
		return
	}
	began := time.Now()
	for info, err := range w.backend.List(w.ctx, w.filter) { // after the versions: no change is between them
		if err == nil {
			w.chosen.Select(&info)
		}
		if !yield(info, err) || err != nil && info.ID == "" { // not the error of one run: the list is not complete
			return
		}
	}
	if !yield(spool.Info{}, nil) {
		return
	}
	for owner, version := range versions {
		w.wg.Go(func() { w.follow(owner, version) })
	}
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		select {
		case t := <-w.told:
			if !w.tell(t, yield) {
				return
			}
		case <-tick.C:
			since := began
			began = time.Now()
			if !w.meet(since, yield) || !w.remove(removed, yield) {
				return
			}
		case <-came:
			came = w.backend.nextKeeper()
			if !w.meet(began, yield) {
				return
			}
		case <-w.ctx.Done():
			yield(spool.Info{}, context.Cause(w.ctx))
			return
		}
	}
}

// remove tells of runs that any process has removed. It reports false if the watcher
// left.
func (w *watch) remove(removed *store.Removals, yield func(spool.Info, error) bool) bool {
	gone, err := removed.Next()
	if err != nil {
		yield(spool.Info{}, err)
		return false
	}
	for _, id := range gone {
		if w.chosen.Remove(id) && !yield(spool.Info{ID: id, State: spool.StateRemoved}, nil) {
			return false
		}
	}
	return true
}

// meet follows the keepers that are new. They may have begun and ended runs already,
// since the last look. It reports false if the watcher left.
func (w *watch) meet(since time.Time, yield func(spool.Info, error) bool) bool {
	versions, err := w.discover(w.known)
	if err != nil {
		yield(spool.Info{}, err)
		return false
	}
	for owner, version := range versions {
		if !w.tell(told{owner: owner, since: since.Add(-discoverEvery)}, yield) {
			return false
		}
		w.wg.Go(func() { w.follow(owner, version) })
	}
	return true
}

// discover returns the versions of the news of keepers that are not known.
func (w *watch) discover(known map[string]bool) (map[string]uint64, error) {
	owners, err := host.Owners(w.backend.opts.Dir)
	if err != nil {
		return nil, err
	}
	versions := make(map[string]uint64)
	for _, o := range owners {
		if known[o.ID] {
			continue
		}
		var c host.Changes
		k, err := w.backend.keeperOf(w.ctx, o.ID)
		if err == nil {
			err = k.call(w.ctx, methodWatch, watchParams{Now: true}, &c)
		}
		switch {
		case err == nil, isUnknownMethod(err):
			w.known[o.ID] = true
			versions[o.ID] = c.Version
		case isGone(err), errors.Is(err, spool.ErrUnsupported): // it ends, or is no keeper: the list has its runs
		default:
			return nil, err
		}
	}
	return versions, nil
}

// follow asks a keeper what changes, until it is gone.
func (w *watch) follow(owner string, version uint64) {
	for asked := time.Now(); ; {
		t := told{owner: owner}
		var c host.Changes
		k, err := w.backend.keeperOf(w.ctx, owner)
		if err == nil {
			err = k.call(w.ctx, methodWatch, watchParams{After: version}, &c)
		}
		switch {
		case w.ctx.Err() != nil:
			return
		case isUnknownMethod(err): // a keeper of an older build: the list tells of its runs
			if pause.For(w.ctx, discoverEvery) != nil {
				return
			}
			err, t.since, asked = nil, asked, time.Now()
		case err == nil && c.Missed:
			t.since, asked = asked, time.Now()
		case err == nil:
			t.runs, asked = c.Runs, time.Now()
		}
		if t.gone = err != nil; t.gone {
			t.since = asked.Add(-discoverEvery)
		}
		version = c.Version
		select {
		case w.told <- t:
		case <-w.ctx.Done():
			return
		}
		if t.gone || !host.Pause(w.ctx) {
			return
		}
	}
}

// tell yields what changed. It reports false if the watcher left.
func (w *watch) tell(t told, yield func(spool.Info, error) bool) bool {
	if t.gone {
		delete(w.known, t.owner)
	}
	if !t.since.IsZero() {
		every := spool.Filter{Since: t.since}
		for info, err := range w.backend.List(w.ctx, every) {
			switch {
			case err == nil && info.Owner == t.owner:
				t.runs = append(t.runs, info)
			case err != nil && info.ID == "": // not the error of one run: changes would be missed
				yield(info, err)
				return false
			}
		}
	}
	for i := range t.runs {
		if w.chosen.Select(&t.runs[i]) && !yield(t.runs[i], nil) {
			return false
		}
	}
	return true
}
