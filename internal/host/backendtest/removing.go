package backendtest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/polltest"
)

// removesFinished checks that a finished run can be deleted, and a live one not.
func removesFinished(t *testing.T, b spool.Backend) {
	remover, ok := b.(spool.Remover)
	if !ok {
		t.Fatalf("%T is no Remover", b)
	}
	ctx := t.Context()
	over := start(t, b, sh("echo over"))
	stays := start(t, b, sh("echo stays"))
	collect(t, over)
	collect(t, stays)
	spec := sh("read x")
	spec.Stdin = true
	live := start(t, b, spec)

	if _, err := remover.Remove(ctx, []spool.RunID{over.ID(), live.ID()}, false); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("remove a live run: %v, want ErrBusy", err)
	}
	if _, err := remover.Remove(ctx, []spool.RunID{over.ID(), "nosuchrun"}, false); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("remove an unknown run: %v, want ErrNotFound", err)
	}
	var before spool.Storage
	// The files of a run are complete a moment after readers see its end.
	polltest.Until(t, "one live run", func() bool {
		var err error
		if before, err = remover.Storage(ctx); err != nil {
			t.Fatal(err)
		}
		return before.LiveRuns <= 1
	})
	if before.LiveRuns != 1 || before.FinishedRuns != 2 || before.FinishedBytes <= 0 {
		t.Errorf("storage %+v, want 1 live and 2 finished runs", before)
	}
	dry, err := remover.Remove(ctx, []spool.RunID{over.ID()}, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := over.Info(ctx); err != nil {
		t.Errorf("after a dry removal: %v", err)
	}
	got, err := remover.Remove(ctx, []spool.RunID{over.ID()}, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != 1 || got.Runs[0] != over.ID() || got.Bytes <= 0 || got.Bytes != dry.Bytes {
		t.Errorf("removed %+v, and without deleting %+v", got, dry)
	}
	// It may have been about to be filed, and is counted until that is noticed.
	var after spool.Storage
	polltest.Until(t, "one finished run", func() bool {
		var err error
		if after, err = remover.Storage(ctx); err != nil {
			t.Fatal(err)
		}
		return after.FinishedRuns <= 1
	})
	if after.FinishedRuns != 1 || before.FinishedBytes-after.FinishedBytes != got.Bytes {
		t.Errorf("storage %+v after %+v was removed from %+v", after, got, before)
	}
	if _, err := over.Info(ctx); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("stat a removed run: %v", err)
	}
	if _, err := over.Read(ctx, spool.Query{}); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("read a removed run: %v", err)
	}
	for e, err := range over.Events(ctx, 0) {
		if !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("follow a removed run: %v, %v", e, err)
		}
	}
	if _, err := remover.Remove(ctx, []spool.RunID{over.ID()}, false); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("remove a run twice: %v", err)
	}
	for info, err := range b.List(ctx, spool.Filter{}) {
		if err != nil || info.ID == over.ID() {
			t.Errorf("a removed run is listed: %v, %v", info.ID, err)
		}
	}
	if got := collect(t, stays); string(got[0].Bytes) != "stays\n" {
		t.Errorf("another run reads %q", got[0].Bytes)
	}
	if err := live.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := live.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	// At once after the end, when the files may not be complete yet.
	if _, err := remover.Remove(ctx, []spool.RunID{live.ID()}, false); err != nil {
		t.Errorf("remove a run that has just ended: %v", err)
	}
}

// removedUnderReader checks that a reader in the middle of a log that is removed
// reads the rest or exactly one gap.
func removedUnderReader(t *testing.T, b spool.Backend) {
	ctx := t.Context()
	// Larger than what a reader may have in flight.
	r := start(t, b, sh("yes 0123456789012345678901234567890123456789012345678901234567890123 | head -c 16000000"))
	last := spool.Seq(0)
	for e, err := range r.Stream(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		last = e.Seq
	}
	page, err := r.Read(ctx, spool.Query{MaxBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	removed := false
	var seen, gaps int
	end := spool.Seq(0)
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			t.Fatalf("after event %d: %v", end, err)
		}
		if !removed {
			removed = true
			if _, err := b.(spool.Remover).Remove(ctx, []spool.RunID{r.ID()}, false); err != nil {
				t.Fatal(err)
			}
		}
		if e.Kind == spool.KindTruncated {
			gaps++
			checkGap(t, &e, end+1, last)
		} else if e.Seq != end+1 {
			t.Fatalf("event %d came after %d", e.Seq, end)
		}
		end = e.Seq
		seen++
	}
	if end != last || gaps > 1 {
		t.Errorf("the reader saw %d events up to %d, with %d gaps; the log had %d", seen, end, gaps, last)
	}
	// A reader that asks for pages.
	for after := page.Next; after < last; {
		page, err := r.Read(ctx, spool.Query{After: after})
		if err != nil {
			t.Fatalf("after event %d: %v", after, err)
		}
		if len(page.Events) == 0 {
			t.Fatalf("no event after %d", after)
		}
		for i := range page.Events {
			if page.Events[i].Kind == spool.KindTruncated {
				checkGap(t, &page.Events[i], after+1, last)
			}
			after = page.Events[i].Seq
		}
	}
}

func checkGap(t *testing.T, e *spool.Event, from, to spool.Seq) {
	t.Helper()
	var gap spool.Truncation
	if err := json.Unmarshal(e.Data, &gap); err != nil {
		t.Fatal(err)
	}
	if gap.From != from || gap.To != to || e.Seq != to {
		t.Errorf("gap %+v at %d, want %d to %d", gap, e.Seq, from, to)
	}
}

// renames checks that live and finished runs are found by a new name, and not by
// the old one.
func renames(t *testing.T, b spool.Backend) {
	renamer, ok := b.(spool.Renamer)
	if !ok {
		t.Fatalf("%T is no Renamer", b)
	}
	ctx := t.Context()
	spec := sh("read x")
	spec.Stdin, spec.Name = true, "first-name"
	r := start(t, b, spec)
	found := func(name string) bool {
		t.Helper()
		n := 0
		for info, err := range b.List(ctx, spool.Filter{Name: name}) {
			if err != nil {
				t.Fatal(err)
			}
			if info.ID == r.ID() {
				n++
			}
		}
		return n == 1
	}
	rename := func(from, to string) {
		t.Helper()
		info, err := renamer.Rename(ctx, r.ID(), to)
		if err != nil || info.Name != to {
			t.Fatalf("rename %s to %s: %+v, %v", from, to, info, err)
		}
		if info, err = r.Info(ctx); err != nil || info.Name != to {
			t.Errorf("renamed %s to %s: %+v, %v", from, to, info, err)
		}
		if found(from) || !found(to) {
			t.Errorf("renamed %s to %s: found by the old name: %v, by the new one: %v", from, to, found(from), found(to))
		}
	}
	rename("first-name", "second-name")
	if err := r.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if info, err := r.Info(ctx); err != nil || info.Name != "second-name" || !found("second-name") {
		t.Errorf("after the end: %+v, %v", info, err)
	}
	rename("second-name", "third-name")
	if _, err := renamer.Rename(ctx, "nosuchrun", "x"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("rename an unknown run: %v", err)
	}
	if _, err := renamer.Rename(ctx, r.ID(), strings.Repeat("x", 1<<20)); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a very long name: %v", err)
	}
}
