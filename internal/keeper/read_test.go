package keeper_test

import (
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// A reader may use the last seq of Stat as its cursor. Its next read, with or
// without waiting, must return all events before that, or the reader misses some.
func TestReadAfterStat(t *testing.T) {
	t.Run("at once", func(t *testing.T) { readAfterStat(t, 0) })
	t.Run("waiting", func(t *testing.T) { readAfterStat(t, time.Minute) })
}

func readAfterStat(t *testing.T, wait time.Duration) {
	b := open(t, stateDir(t), "one")
	run, err := spool.Start(t.Context(), b, spool.Spec{
		Argv: []string{"/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do echo $i; echo $i >&2; i=$((i+1)); done"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for {
		info, err := run.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		page, err := run.Read(t.Context(), spool.Query{MaxBytes: 1 << 20, Wait: wait})
		if err != nil {
			t.Fatal(err)
		}
		if page.Next < info.Last {
			t.Fatalf("a read ends at event %d after Stat returned event %d", page.Next, info.Last)
		}
		if info.State == spool.StateClosed {
			return
		}
	}
}

// A server that finds a run in the files must not describe it as of its start.
func TestReadDescribesLastEvent(t *testing.T) {
	dir := stateDir(t)
	b := open(t, dir, "one")
	run, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"/bin/sh", "-c", "echo hi; sleep 1000 & exit 3"}})
	if err != nil {
		t.Fatal(err)
	}
	for e, err := range run.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindExited {
			break
		}
	}
	page, err := open(t, dir, "one").Read(t.Context(), run.ID(), spool.Query{})
	if err != nil {
		t.Fatal(err)
	}
	if o := page.Info.Outcome; o == nil || o.Code != 3 || page.Info.State != spool.StateExited {
		t.Errorf("the page ends with event %d and describes the run as %s with outcome %v", page.Next, page.Info.State, o)
	}
	if err := run.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// List returns a run as soon as its start begins. From then on Stat finds it too,
// for example after the restart of a server.
func TestListedRunIsFound(t *testing.T) {
	dir := stateDir(t)
	b, other := open(t, dir, "one"), open(t, dir, "one")
	ended := make(chan struct{})
	defer func() { <-ended }()
	go func() {
		defer close(ended)
		for range 100 {
			if _, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"true"}}); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for {
		for info, err := range other.List(t.Context(), spool.Filter{Live: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Stat(t.Context(), info.ID); err != nil {
				t.Fatalf("run %s is listed as %s: %v", info.ID, info.State, err)
			}
		}
		select {
		case <-ended:
			return
		default:
		}
	}
}
