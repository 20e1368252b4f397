package lens

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// TestDamage checks that what precedes the damage of a log is shown, and that the
// damage is told.
func TestDamage(t *testing.T) {
	l := &logOf{}
	for i := range 9 {
		l.output(spool.Stdout, fmt.Appendf(nil, "line %d\n", i+1))
	}
	for _, from := range []spool.Seq{1, 6, 9} {
		l.damaged = from
		good := int64(from) - 1
		for _, q := range []RowsQuery{{From: 1}, {From: -20, Quick: true}, {Time: epoch}} {
			lens := New(l, Options{})
			for range 2 { // now, and when it is known
				rows, err := lens.Rows(t.Context(), "r", q)
				if err != nil {
					t.Fatal(err)
				}
				if int64(len(rows.Lines)) != good || rows.Total != good || !rows.Complete || rows.DamagedFrom != from {
					t.Errorf("damaged at %d: %+v gives %d lines of %d, complete %v, damaged at %d", from, q, len(rows.Lines), rows.Total, rows.Complete, rows.DamagedFrom)
				}
			}
		}
		lens := New(l, Options{})
		if n, err := lens.Number(t.Context(), "r", 9, 0); err != nil || n != int64(from) {
			t.Errorf("damaged at %d: the line of event 9 is %d, %v", from, n, err)
		}
		x, err := lens.Index(t.Context(), "r", time.Minute)
		if err != nil || x.DamagedFrom != from || x.Lines != good || !x.Complete {
			t.Errorf("damaged at %d: index %+v, %v", from, x, err)
		}
	}
}

// TestTruncatedMark checks that an index says where output is missing, and how much.
func TestTruncatedMark(t *testing.T) {
	l := &logOf{}
	truncated := func(what spool.Truncation) {
		data, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		l.add(spool.Event{Kind: spool.KindTruncated, Data: data})
	}
	gap := spool.Truncation{From: 1, To: 1}
	dropped := spool.Truncation{DroppedBytes: map[spool.Stream]int64{spool.Stdout: 70}, LimitBytes: 10}
	truncated(gap)
	l.output(spool.Stdout, []byte("a\nb\nopen"))
	truncated(dropped)
	l.output(spool.Stdout, []byte(" end\n"))
	x, err := New(l, Options{}).Index(t.Context(), "r", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := []Mark{
		{Seq: 1, Time: l.events[0].Time, Kind: MarkTruncated, Line: 1, Truncation: &gap},
		{Seq: 3, Time: l.events[2].Time, Kind: MarkTruncated, Line: 4, Truncation: &dropped},
	}
	if diff := cmp.Diff(want, x.Marks); diff != "" {
		t.Errorf("marks (-want +got):\n%s", diff)
	}
}
