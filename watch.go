package spool

import (
	"context"
	"fmt"
	"iter"
)

// Watcher is a [Backend] that tells which runs change. The backends of packages local
// and client are Watchers.
type Watcher interface {
	// Watch yields the runs that the filter selects, then an [Info] without an
	// id, and from then on every run that changes and that the filter selects
	// or selected before the change. It is told what is, not what was: several
	// changes of a run within a quarter of a second are one. A run that was yielded
	// and is removed, by any process, is yielded with [StateRemoved] and
	// nothing else but its id.
	//
	// Over a connection that was lost and made again it begins anew: it yields
	// all runs, and again an Info without an id. The errors of runs that cannot
	// be read come between the runs; another error is the last thing it yields.
	// A filter with a limit or a cursor is [ErrInvalid].
	Watch(ctx context.Context, f Filter) iter.Seq2[Info, error]
}

// CheckWatch returns [ErrInvalid] for a filter that [Watcher.Watch] does not take.
func (f *Filter) CheckWatch() error {
	if f.Limit != 0 || f.After != "" {
		return fmt.Errorf("watch runs: %w: the filter has neither a limit nor a cursor", ErrInvalid)
	}
	if err := f.Check(); err != nil {
		return fmt.Errorf("watch runs: %w", err)
	}
	return nil
}
