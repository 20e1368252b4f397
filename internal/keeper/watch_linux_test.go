package keeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

// TestWatchRemovedByOthers has another process, which is no backend that the watcher
// knows, remove a run: as "spool prune" and the sweep of a keeper do.
func TestWatchRemovedByOthers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := stateDir(t)
	b := open(t, dir, "a")
	info, err := b.Start(ctx, spool.Spec{Argv: []string{"true"}, Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Attach(b, info.ID).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Complete(ctx); err != nil {
		t.Fatal(err)
	}
	other, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	removed := false
	for i, err := range b.Watch(ctx, spool.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if i.ID == "" {
			if _, err := other.Sweep(store.Retention{Age: time.Nanosecond}, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		if removed = i.ID == info.ID && i.State == spool.StateRemoved; removed {
			break
		}
	}
	if !removed {
		t.Error("the watcher was not told")
	}
}
