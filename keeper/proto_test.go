package keeper

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// TestNewsJSON checks that the form made by hand is the one its tags promise.
func TestNewsJSON(t *testing.T) {
	last := spool.Seq(2)
	at := time.Date(2026, 11, 15, 1, 2, 3, 4, time.UTC)
	info := spool.Info{ID: "r1", Engine: "process", Argv: []string{"true"}, Created: at, State: spool.StateClosed, Last: 2}
	for name, news := range map[string]awaitResult{
		"nothing but where": {Info: info, Last: &last, Segment: 1, Size: 500},
		"no last":           {Info: info, Segment: 1, Size: 500},
		"with events": {Info: info, Last: &last, Segment: 1, Size: 500, Events: []spool.Event{
			{Run: "r1", Seq: 1, Time: at, Kind: spool.KindExited, Data: json.RawMessage(`{"code":0}`)},
			{Run: "r1", Seq: 2, Time: at, Kind: spool.KindClosed},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct {
				tagged any
				byHand []byte
			}{
				{news, news.AppendJSON(nil)},
				{newsParams{"r1", news}, (&newsParams{"r1", news}).AppendJSON(nil)},
			} {
				want, err := json.Marshal(tt.tagged)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), string(tt.byHand)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}
