package keeper_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/store"
)

// TestWatchWithUnreachableKeeper has a living keeper that nobody can connect to. Its runs
// are not known, so a watch must not say that it has told of all runs.
func TestWatchWithUnreachableKeeper(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := stateDir(t)
	b := open(t, dir, "a")
	hosts := filepath.Join(dir, "hosts")
	if err := os.MkdirAll(hosts, 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(hosts, "silent.json"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if ok, err := flock.TryLock(file); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := json.NewEncoder(file).Encode(host.Owner{ID: "silent", Pid: os.Getpid(), Address: "keeper:" + filepath.Join(hosts, "silent.sock")}); err != nil {
		t.Fatal(err)
	}
	var last error
	for info, err := range b.Watch(ctx, spool.Filter{}) {
		if err == nil && info.ID == "" {
			t.Fatal("the watch says that it has told of all runs")
		}
		last = err
	}
	if last == nil || !strings.Contains(last.Error(), "a keeper does not answer") {
		t.Errorf("the watch ends with %v", last)
	}
}

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
