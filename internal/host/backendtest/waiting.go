package backendtest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/polltest"
)

// waiting checks what the description of a run says about its turn and its asks.
func waiting(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{"input":"ask"}`)
	// until waits for a description: it may be a moment older than the log.
	until := func(what string, right func(*spool.Info) bool) spool.Info {
		t.Helper()
		var info spool.Info
		polltest.Until(t, what, func() bool {
			var err error
			if info, err = b.Stat(k.ctx, k.ID()); err != nil {
				t.Fatal(err)
			}
			return right(&info)
		})
		return info
	}
	listed := func(f spool.Filter) bool {
		t.Helper()
		for info, err := range b.List(k.ctx, f) {
			if err != nil {
				t.Fatal(err)
			}
			if info.ID == k.ID() {
				return true
			}
		}
		return false
	}
	idle := func(i *spool.Info) bool { return i.Turn == 0 && i.Asks == nil }
	until("idle", idle)
	if listed(spool.Filter{Waiting: true}) {
		t.Error("an idle run is among those that wait")
	}
	first := k.exec(`name = input("name? ")`)
	second := k.exec(`1`)
	info := until("the ask", func(i *spool.Info) bool { return i.Asks != nil })
	if info.Turn != first.Seq() || info.Asks.Count != 1 || len(info.Asks.Open) != 1 {
		t.Fatalf("turn %d with the asks %+v", info.Turn, info.Asks)
	}
	var fromList *spool.Info
	for i, err := range b.List(k.ctx, spool.Filter{Waiting: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if i.ID == k.ID() {
			fromList = &i
		}
	}
	if fromList == nil || fromList.Turn != first.Seq() || cmp.Diff(info.Asks, fromList.Asks) != "" {
		t.Errorf("the list says %+v", fromList)
	}
	page, err := k.Read(k.ctx, spool.Query{After: info.Asks.Open[0] - 1})
	if err != nil || len(page.Events) == 0 || page.Events[0].Kind != spool.KindAsk {
		t.Errorf("event %d is no ask: %v, %v", info.Asks.Open[0], page.Events, err)
	}
	if err := k.Reply(k.ctx, info.Asks.Open[0], "anna"); err != nil {
		t.Fatal(err)
	}
	k.await(first)
	k.await(second)
	until("idle again", idle)
	k.exec(`input("again? ")`)
	until("the second ask", func(i *spool.Info) bool { return i.Asks != nil && i.Turn != 0 })
	if err := k.Kill(k.ctx); err != nil {
		t.Fatal(err)
	}
	until("the end", func(i *spool.Info) bool { return i.State == spool.StateClosed && idle(i) })
	if listed(spool.Filter{Waiting: true}) {
		t.Error("a finished run is among those that wait")
	}
}
