package host

import (
	"context"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
)

// TestNewsAreBounded checks that the news forget the changes of runs that have ended,
// and say so to whoever has not seen them.
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
