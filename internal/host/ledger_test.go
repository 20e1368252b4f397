package host

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// The account of a run counts turns, the last total of tokens and limits, each
// once; what it does not know it does not count.
func TestAccountCounts(t *testing.T) {
	events := []spool.Event{
		{Kind: spool.KindInput, Data: []byte(`{"kind":"prompt","data":{"text":"do it"}}`)},
		{Kind: spool.KindInput, Data: []byte(`{"kind":"answer","data":{"ask":2}}`)},
		{Kind: spool.KindNotice, Data: []byte(`{"code":"timeout","text":"took too long"}`)},
		{Kind: spool.KindNotice, Data: []byte(`{"code":"timeout","text":"again"}`)},
		{Kind: spool.KindNotice, Data: []byte(`{"code":"tree_kill","text":"no limit"}`)},
		{Kind: spool.KindNotice, Data: []byte(`{"code":"`)},
		{Kind: spool.KindNotice},
		{Kind: spool.KindDone, Turn: 1, Data: []byte(`{"outcome":"budget","usage":{"turn":{"input":1,"output":1},"run":{"input":10,"cache_read":4,"output":3,"cost_usd":0.25,"steps":2}}}`)},
		{Kind: spool.KindInput, Data: []byte(`{"kind":"prompt","data":{"text":"more"}}`)},
		{Kind: spool.KindDone, Turn: 9, Data: []byte(`{"outcome":"ok","usage":{"run":{"input":20,"output":6,"cost_usd":0.5}}}`)},
		{Kind: spool.KindDone, Turn: 9, Data: []byte(`{"outcome":"killed","ended_by":"memory"}`)},
		{Kind: spool.KindDone, Turn: 9, Data: []byte(`not JSON`)},
	}
	var a account
	for i := range events {
		a.count(&events[i])
	}
	refused := spool.Event{Kind: spool.KindInput, Data: []byte(`{"kind":"prompt"}`)}
	a.count(&refused)
	a.uncount(&refused)
	if a.turns != 2 {
		t.Errorf("%d turns", a.turns)
	}
	if diff := cmp.Diff([]string{"timeout", "turn_budget", "turn_memory"}, a.limits); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(&spool.TokenUse{Input: 20, Output: 6, CostUSD: 0.5}, a.tokens); diff != "" {
		t.Error(diff)
	}
}
