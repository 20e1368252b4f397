package keeper

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// someNews is what keepers tell, by what is special about it.
func someNews() map[string]awaitResult {
	last := spool.Seq(2)
	at := time.Date(2026, 11, 15, 1, 2, 3, 4, time.UTC)
	info := spool.Info{ID: "r1", Engine: "process", Argv: []string{"true"}, Created: at, State: spool.StateClosed, Last: 2, Bytes: 3,
		Ended: at, Outcome: &spool.Outcome{Kind: spool.Exited, Code: -3, Signal: "SIGTERM", Reason: "why"}}
	return map[string]awaitResult{
		"nothing but where": {Info: info, Last: &last, Segment: 1, Size: 500},
		"with events": {Info: info, Last: &last, Segment: 1, Size: 500, Events: []spool.Event{
			{Run: "r1", Seq: 1, Time: at, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("hi\n")},
			{Run: "r1", Seq: 2, Time: at, Kind: spool.KindExited, Data: json.RawMessage(`{"code":0}`)},
			{Run: "r1", Seq: 3, Time: at, Kind: spool.KindClosed},
		}},
	}
}

// TestNewsJSON checks that the form made by hand is the one its tags promise.
func TestNewsJSON(t *testing.T) {
	for name, news := range someNews() {
		t.Run(name, func(t *testing.T) {
			want, err := json.Marshal(news)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(news.AppendJSON(nil))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNewsRoundTrip(t *testing.T) {
	for name, news := range someNews() {
		t.Run(name, func(t *testing.T) {
			b, err := appendNews(nil, &news)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeNews(b)
			if err != nil {
				t.Fatal(err)
			}
			want := news // without what is known from the start
			want.Info = spool.Info{ID: "r1", State: spool.StateClosed, Last: 2, Bytes: 3, Ended: news.Info.Ended, Outcome: news.Info.Outcome}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
			info, err := decodeInfo(appendInfo(nil, &news.Info))
			if diff := cmp.Diff(news.Info, info); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			events := 0
			for n := range b { // cut anywhere it is no news, or fewer events
				cut, err := decodeNews(b[:n])
				if err == nil {
					if len(cut.Events) != events {
						t.Errorf("cut at %d: %d events", n, len(cut.Events))
					}
					events++
				}
			}
		})
	}
}

func FuzzDecodeNews(f *testing.F) {
	for _, news := range someNews() {
		b, err := appendNews(nil, &news)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		news, err := decodeNews(b)
		if err == nil && news.Last == nil {
			t.Error("news that do not say where the log ends")
		}
		if info, err := decodeInfo(b); err == nil {
			again, err := decodeInfo(appendInfo(nil, &info))
			if diff := cmp.Diff(info, again); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
	})
}
