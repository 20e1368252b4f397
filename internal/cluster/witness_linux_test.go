package cluster_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
)

// witness is the runs of a node that only notes what it was to execute. They end at once.
type witness struct {
	cluster.Backend
	mu   sync.Mutex
	runs map[spool.RunID]spool.Info
}

func newWitness() *witness { return &witness{runs: make(map[spool.RunID]spool.Info)} }

// Start implements [spool.Backend].
func (w *witness) Start(_ context.Context, spec spool.Spec) (spool.Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info, ok := w.runs[spec.ID]
	if !ok {
		now := time.Now()
		info = spool.Info{ID: spec.ID, Engine: spool.EngineProcess, Argv: spec.Argv, Created: now, Ended: now, State: spool.StateClosed, Outcome: &spool.Outcome{Kind: spool.Exited}}
		w.runs[spec.ID] = info
	}
	return info, nil
}

// Stat implements [spool.Backend].
func (w *witness) Stat(_ context.Context, id spool.RunID) (spool.Info, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if info, ok := w.runs[id]; ok {
		return info, nil
	}
	return spool.Info{}, fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
}

// List implements [spool.Backend].
func (w *witness) List(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	w.mu.Lock()
	infos := slices.Collect(maps.Values(w.runs))
	w.mu.Unlock()
	return func(yield func(spool.Info, error) bool) {
		for _, info := range infos {
			if !yield(info, nil) {
				return
			}
		}
	}
}

// Watch implements [spool.Watcher]. Everything has ended when its start is answered.
func (w *witness) Watch(ctx context.Context, _ spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		<-ctx.Done()
		yield(spool.Info{}, context.Cause(ctx))
	}
}
