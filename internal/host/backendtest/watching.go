package backendtest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// watching checks that a watcher learns of every run, what there was and what comes,
// and of the end of each.
func watching(t *testing.T, b spool.Backend) {
	watcher, ok := b.(spool.Watcher)
	if !ok {
		t.Fatalf("%T is no Watcher", b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	labels := map[string]string{"watched": "yes"}
	start := func(name, script string, labels map[string]string) spool.RunID {
		t.Helper()
		info, err := b.Start(ctx, spool.Spec{Name: name, Argv: []string{"/bin/sh", "-c", script}, Cwd: "/", Stdin: true, Labels: labels})
		if err != nil {
			t.Fatal(err)
		}
		return info.ID
	}
	end := func(id spool.RunID) {
		t.Helper()
		if _, err := b.Send(ctx, id, spool.Input{Kind: spool.InputEOF}); err != nil {
			t.Error(err)
		}
	}
	before := start("before", "cat", labels)
	done := start("done", "exit 3", labels)
	if info, err := spool.Attach(b, done).Wait(ctx); err != nil || info.Code != 3 {
		t.Fatal(info, err)
	}
	other := start("other", "cat", nil)

	var synced bool
	var after, late spool.RunID
	live := spool.Filter{Live: true, Labels: labels}
	seen := make(map[spool.RunID]spool.Info)
	for info, err := range watcher.Watch(ctx, spool.Filter{Labels: labels}) {
		if err != nil {
			t.Fatal(err)
		}
		seen[info.ID] = info
		switch {
		case info.ID == "" && !synced:
			synced = true
			if len(seen) != 3 || seen[before].State != spool.StateRunning || seen[done].State != spool.StateClosed {
				t.Fatalf("at first it saw %v", seen)
			}
			end(before)
			end(other)
			after = start("after", "echo hi; cat", labels)
		case info.ID == other:
			t.Errorf("it saw a run that the filter does not select: %+v", info)
		case info.ID == after && after != "" && info.Bytes == 3 && info.State == spool.StateRunning:
			end(after)
		case late == "" && after != "" && seen[after].State == spool.StateClosed && seen[before].State == spool.StateClosed:
			late = start("late", "cat", labels)
		}
		if late != "" && info.ID == late {
			break
		}
	}
	if !synced || seen[before].Outcome == nil || seen[before].Outcome.Code != 0 {
		t.Errorf("it saw %v", seen)
	}

	// A run that the filter does not select any more is seen a last time.
	ended := false
	for info, err := range watcher.Watch(ctx, live) {
		if err != nil {
			t.Fatal(err)
		}
		if info.ID == "" {
			end(late)
		}
		if ended = info.ID == late && info.State == spool.StateClosed; ended {
			break
		}
	}
	if !ended {
		t.Error("the end of a run was not seen")
	}

	// A run that started while nobody watched is seen to end.
	quiet := start("quiet", "cat", labels)
	for info, err := range watcher.Watch(ctx, live) {
		if err != nil {
			t.Fatal(err)
		}
		if info.ID == "" {
			end(quiet)
		}
		if info.ID == quiet && info.State == spool.StateClosed {
			break
		}
	}

	removing(ctx, t, b, watcher, done, labels)

	left := errors.New("left")
	ctx, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	var last error
	for info, err := range watcher.Watch(ctx, live) {
		if info.ID == "" {
			leave(left)
		}
		last = err
	}
	if !errors.Is(last, left) {
		t.Errorf("the last error of a watcher that left is %v", last)
	}
	for _, f := range []spool.Filter{{Limit: 1}, {After: (&spool.Info{ID: "x"}).Cursor()}, {State: "x"}} {
		for _, err := range watcher.Watch(t.Context(), f) {
			if !errors.Is(err, spool.ErrInvalid) {
				t.Errorf("%s: %v", fmt.Sprint(f), err)
			}
			break
		}
	}
}

// removing checks that a watcher learns of the removal of a run that it was told of, and of
// no other.
func removing(ctx context.Context, t *testing.T, b spool.Backend, watcher spool.Watcher, done spool.RunID, labels map[string]string) {
	t.Helper()
	remover, ok := b.(spool.Remover)
	if !ok {
		return
	}
	other := start(t, b, sh("true")) // which the filter does not select
	collect(t, other)
	var gone spool.Info
	for info, err := range watcher.Watch(ctx, spool.Filter{Labels: labels}) {
		if err != nil {
			t.Fatal(err)
		}
		if info.ID == "" {
			if _, err := remover.Remove(ctx, []spool.RunID{other.ID(), done}, false); err != nil {
				t.Fatal(err)
			}
		}
		if gone = info; info.State == spool.StateRemoved {
			break
		}
	}
	if gone.ID != done || len(gone.Labels) > 0 {
		t.Errorf("the watcher was told that %+v is removed, want %s", gone, done)
	}
}
