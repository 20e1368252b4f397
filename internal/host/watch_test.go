package host

import (
	"context"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
)

// TestNewsAreBounded checks that the news forget the changes of runs that have ended,
// and say so to watchers that have not seen them.
func TestNewsAreBounded(t *testing.T) {
	h, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	version := h.News()
	for range maxEnded + 1 {
		r := newRun(context.Background(), spool.Info{ID: spool.RunID(NewID()), State: spool.StateClosed})
		r.log = eventlog.New(eventlog.Options{Sealed: true})
		h.news.mark(r)
	}
	first, err := h.NewsAfter(t.Context(), version)
	if err != nil || len(first.Runs) != maxEnded+1 || first.Missed {
		t.Fatalf("%d runs changed, missed %t, %v", len(first.Runs), first.Missed, err)
	}
	again, err := h.NewsAfter(t.Context(), version)
	if err != nil || !again.Missed || len(again.Runs) != maxEnded/2 || again.Version != first.Version {
		t.Fatalf("%d runs changed, missed %t, %v", len(again.Runs), again.Missed, err)
	}
}

// TestNewsAfterOthersLeft checks that who asks for news learns of every change, also of a
// run that changed when the one who asked before had left.
func TestNewsAfterOthersLeft(t *testing.T) {
	h, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	r := newRun(context.Background(), spool.Info{ID: spool.RunID(NewID()), State: spool.StateRunning})
	r.log = eventlog.New(eventlog.Options{})
	write := func() {
		t.Helper()
		if _, err := r.log.Append(spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	version := h.News()
	h.news.mark(r)
	if _, err := h.NewsAfter(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	for range 3 { // each asks, and leaves before it has looked at the change
		h.News()
		write()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	version = h.News()
	write()
	c, err := h.NewsAfter(ctx, version)
	if err != nil || len(c.Runs) != 1 || c.Runs[0].ID != r.info.ID {
		t.Fatalf("changes %+v, %v", c, err)
	}
}
