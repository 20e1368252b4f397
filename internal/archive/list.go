package archive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// manifestsAtOnce is how many manifests a list reads at once.
const manifestsAtOnce = 16

// Query selects runs of an archive. The zero value selects all.
type Query struct {
	// Since and Before bound when a run was archived, by the clock of the place.
	Since, Before time.Time
	// Match selects by the manifest; nil selects all.
	Match func(*Manifest) bool
}

// List yields the manifests of runs, in the order of their keys, which is none that
// tells people anything. For a manifest that cannot be read it yields the error, and goes
// on.
func (a *Archive) List(ctx context.Context, q Query) iter.Seq2[*Manifest, error] {
	return func(yield func(*Manifest, error) bool) {
		var batch []spool.RunID
		flush := func() bool {
			more := a.readAll(ctx, batch, &q, yield)
			batch = batch[:0]
			return more
		}
		for o, err := range a.objects.List(ctx, runsPrefix) {
			if err != nil {
				yield(nil, fmt.Errorf("list the archive %s: %w", a.objects, err))
				return
			}
			id, name, ok := parseKey(o.Key)
			if !ok || name != manifestName || o.Modified.Before(q.Since) || !q.Before.IsZero() && !o.Modified.Before(q.Before) {
				continue
			}
			if batch = append(batch, id); len(batch) == manifestsAtOnce && !flush() {
				return
			}
		}
		flush()
	}
}

// readAll reads manifests at once and yields them in order.
func (a *Archive) readAll(ctx context.Context, ids []spool.RunID, q *Query, yield func(*Manifest, error) bool) bool {
	found, errs := make([]*Manifest, len(ids)), make([]error, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { found[i], errs[i] = a.Manifest(ctx, id) })
	}
	wg.Wait()
	for i, m := range found {
		switch {
		case errors.Is(errs[i], spool.ErrNotFound): // removed meanwhile
		case errs[i] != nil:
			if !yield(nil, errs[i]) {
				return false
			}
		case q.Match != nil && !q.Match(m):
		case !yield(m, nil):
			return false
		}
	}
	return true
}

// abandonedAfter is how old what an upload left is before it is removed. A shipper
// replaces what is older than [freshFor] before it builds on it, and gives up an attempt
// after [attemptFor].
const abandonedAfter = 48 * time.Hour

// RemoveAbandoned deletes the objects of runs that have no manifest, if none of them is
// new: uploads that nobody goes on with. It returns how many objects it deleted.
func (a *Archive) RemoveAbandoned(ctx context.Context, now time.Time) (removed int, err error) {
	type group struct {
		newest time.Time
		keys   []string
		whole  bool // it has a manifest
	}
	groups := make(map[spool.RunID]*group)
	for o, err := range a.objects.List(ctx, runsPrefix) {
		if err != nil {
			return 0, fmt.Errorf("look for abandoned uploads: %w", err)
		}
		id, name, ok := parseKey(o.Key)
		if !ok {
			continue
		}
		g := groups[id]
		if g == nil {
			g = new(group)
			groups[id] = g
		}
		if name == manifestName {
			g.whole, g.keys = true, nil
		}
		if o.Modified.After(g.newest) {
			g.newest = o.Modified
		}
		if !g.whole {
			g.keys = append(g.keys, o.Key)
		}
	}
	for id, g := range groups {
		if g.whole || now.Sub(g.newest) < abandonedAfter {
			continue
		}
		if _, err := a.objects.Stat(ctx, manifestKey(id)); !errors.Is(err, fs.ErrNotExist) {
			continue // it was completed meanwhile, or nobody knows
		}
		for _, key := range g.keys {
			if err := a.objects.Remove(ctx, key); err != nil {
				return removed, fmt.Errorf("remove an abandoned upload: %w", err)
			}
			removed++
		}
	}
	return removed, nil
}
