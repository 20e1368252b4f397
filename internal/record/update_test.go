package record_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// someUpdates are updates by name.
func someUpdates() map[string]record.Update {
	at := time.Date(2026, 11, 15, 1, 2, 3, 4, time.UTC)
	info := spool.Info{ID: "r1", Engine: "process", Argv: []string{"true"}, Created: at, State: spool.StateClosed, Last: 2, Bytes: 3,
		Ended: at, Outcome: &spool.Outcome{Kind: spool.Exited, Code: -3, Signal: "SIGTERM", Reason: "why"}}
	return map[string]record.Update{
		"nothing but where": {Info: info, Last: 2, Segment: 1, Size: 500},
		"with events": {Info: info, Last: 2, Segment: 1, Size: 500, Events: []spool.Event{
			{Run: "r1", Seq: 1, Time: at, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("hi\n")},
			{Run: "r1", Seq: 2, Time: at, Kind: spool.KindExited, Data: json.RawMessage(`{"code":0}`)},
			{Run: "r1", Seq: 3, Time: at, Kind: spool.KindClosed},
		}},
	}
}

// TestUpdateJSON checks that the form made by hand is the one its tags promise.
func TestUpdateJSON(t *testing.T) {
	for name, update := range someUpdates() {
		t.Run(name, func(t *testing.T) {
			want, err := json.Marshal(update)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(update.AppendJSON(nil))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestUpdateRoundTrip(t *testing.T) {
	for name, update := range someUpdates() {
		t.Run(name, func(t *testing.T) {
			b, err := record.AppendUpdate(nil, &update)
			if err != nil {
				t.Fatal(err)
			}
			got, err := record.DecodeUpdate(b)
			if err != nil {
				t.Fatal(err)
			}
			want := update // without what is known from the start
			want.Info = spool.Info{ID: "r1", State: spool.StateClosed, Last: 2, Bytes: 3, Ended: update.Info.Ended, Outcome: update.Info.Outcome}
			if diff := cmp.Diff(&want, got); diff != "" {
				t.Error(diff)
			}
			info, err := record.DecodeInfo(record.AppendInfo(nil, &update.Info))
			if diff := cmp.Diff(update.Info, info); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
			events := 0
			for n := range b { // cut anywhere, it is an error or has fewer events
				cut, err := record.DecodeUpdate(b[:n])
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

// A whole update that is cut anywhere before its events is an error.
func TestWholeUpdateIsCut(t *testing.T) {
	update := someUpdates()["nothing but where"]
	b, err := record.AppendWhole([]byte("before"), &update)
	if err != nil {
		t.Fatal(err)
	}
	b = b[len("before"):]
	for n := range b {
		facts, rest, err := record.CutWhole(b[:n])
		if err == nil {
			_, err = record.DecodeInfo(facts)
		}
		if err == nil {
			err = new(record.Update).Decode(rest)
		}
		if err == nil {
			t.Errorf("cut at %d of %d: no error", n, len(b))
		}
	}
}

func FuzzDecodeUpdate(f *testing.F) {
	for _, update := range someUpdates() {
		b, err := record.AppendUpdate(nil, &update)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		if b, err = record.AppendWhole(nil, &update); err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if facts, rest, err := record.CutWhole(b); err == nil && len(facts)+len(rest)+4 != len(b) {
			t.Errorf("%d bytes were divided into %d and %d", len(b), len(facts), len(rest))
		}
		if update, err := record.DecodeUpdate(b); err == nil {
			again, err := record.AppendUpdate(nil, update)
			if err != nil && !unnamed(update) {
				t.Errorf("the decoded update does not encode: %v", err)
			}
			if back, backErr := record.DecodeUpdate(again); err == nil {
				if diff := cmp.Diff(update, back); backErr != nil || diff != "" {
					t.Errorf("%v\n%s", backErr, diff)
				}
			}
		}
		if info, err := record.DecodeInfo(b); err == nil {
			again, err := record.DecodeInfo(record.AppendInfo(nil, &info))
			if diff := cmp.Diff(info, again); err != nil || diff != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		}
	})
}

// unnamed reports whether an update holds an event of a later version, whose kind or
// stream has no name here.
func unnamed(update *record.Update) bool {
	for _, e := range update.Events {
		if strings.HasPrefix(string(e.Kind), "kind-") || strings.HasPrefix(string(e.Stream), "stream-") {
			return true
		}
	}
	return false
}
