package lens

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// The last lines of a log that was not read are those that it has, without numbers,
// and cost little.
func TestEnding(t *testing.T) {
	l := randomLog(rand.New(rand.NewPCG(3, 3)), 6<<20)
	all := naive(l.events)
	lens := New(l, Options{})
	for _, n := range []int64{1, 7, 400} {
		got, err := lens.Rows(t.Context(), "a", RowsQuery{From: -n, Quick: true})
		if err != nil || int64(len(got.Lines)) != n || got.Complete {
			t.Fatalf("%d lines, complete %v: %v", len(got.Lines), got.Complete, err)
		}
		for i, r := range got.Lines {
			want := all[len(all)-int(n)+i]
			want.N = int64(i) - n
			want.Continued = r.Continued // what is before is not known
			if d := cmp.Diff(want, r); d != "" {
				t.Fatalf("the last %d lines: %s", n, d)
			}
		}
	}
	if l.reads > 30 {
		t.Errorf("%d pages were read", l.reads)
	}
	if got, err := lens.Rows(t.Context(), "a", RowsQuery{From: -2, Quick: true, Streams: []spool.Stream{spool.Stderr}}); err != nil || len(got.Lines) != 2 || got.Lines[1].Stream != spool.Stderr {
		t.Errorf("lines of a stream %+v: %v", got.Lines, err)
	}
	// What is known has its number.
	if _, err := lens.Index(t.Context(), "a", time.Hour); err != nil {
		t.Fatal(err)
	}
	got, err := lens.Rows(t.Context(), "a", RowsQuery{From: -3, Quick: true})
	if err != nil || len(got.Lines) != 3 || got.Lines[2].N != int64(len(all)) || !got.Complete {
		t.Errorf("%+v: %v", got, err)
	}
	// One line that is longer than what is read at once.
	l = &logOf{info: spool.Info{ID: "a"}}
	for range 5 {
		l.output(spool.Stdout, bytes.Repeat([]byte("x"), 1<<20))
	}
	got, err = New(l, Options{}).Rows(t.Context(), "a", RowsQuery{From: -3, Quick: true})
	if err != nil || len(got.Lines) != 1 || got.Lines[0].N != 1 || !got.Lines[0].Cut {
		t.Errorf("one line: %d lines: %v", len(got.Lines), err)
	}
}

// An index says where something happened, and is fine enough for the time of little
// output.
func TestMarks(t *testing.T) {
	l := &logOf{info: spool.Info{ID: "a"}}
	data := func(kind spool.Kind, text string) { l.add(spool.Event{Kind: kind, Data: []byte(text)}) }
	data(spool.KindInput, `{"kind":"prompt","data":{"text":"go"}}`)
	data(spool.KindInput, `{"kind":"answer","data":{}}`)
	data(spool.KindAsk, `{"kind":"approve"}`)
	data("action", `{"id":"1","ok":true}`)
	data("action", `{"id":"2","ok":false}`)
	data("exception", `{"name":"ValueError"}`)
	data(spool.KindDone, `{"outcome":"ok"}`)
	data(spool.KindDone, `{"outcome":"error"}`)
	data(spool.KindResized, `{"rows":10,"cols":20}`)
	for i := range 1000 {
		l.output(spool.Stdout, fmt.Appendln(nil, i))
	}
	data(spool.KindExited, `{"code":0}`)
	got, err := New(l, Options{}).Index(t.Context(), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[spool.Seq]string)
	for _, m := range got.Marks {
		kinds[m.Seq] = m.Kind
	}
	want := map[spool.Seq]string{1: MarkTurn, 3: MarkAsk, 5: MarkFailed, 6: MarkException, 8: MarkFailed, 9: MarkResized, 1010: MarkEnd}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Error(d)
	}
	if n := len(got.Points); n < 4 || n > 6 { // of one second
		t.Errorf("%d points", n)
	}
	if !got.End.Equal(l.events[len(l.events)-1].Time) {
		t.Errorf("the last event was at %v", got.End)
	}
	for range 3 * shownMarks {
		data(spool.KindAsk, `{}`)
	}
	if got, err = New(l, Options{}).Index(t.Context(), "a", time.Hour); err != nil || len(got.Marks) > shownMarks || len(got.Marks) < shownMarks/2 || got.Marks[0].Seq != 1 {
		t.Errorf("%d marks: %v", len(got.Marks), err)
	}
}

// endless is a log that always has more, until it is stopped.
type endless struct {
	spool.Backend // has no other methods
	stopped       atomic.Bool
	reads         chan struct{}
}

func (l *endless) Stat(context.Context, spool.RunID) (spool.Info, error) {
	return spool.Info{ID: "a"}, nil
}

func (l *endless) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	select {
	case l.reads <- struct{}{}:
	default:
	}
	time.Sleep(turnFor)
	seq := q.After + 1
	page := spool.Page{Next: seq, Info: spool.Info{ID: "a", Last: seq}}
	page.Events = []spool.Event{{Seq: seq, Time: epoch, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("a\nb\n")}}
	if !l.stopped.Load() {
		page.Info.Last++
	}
	return page, nil
}

// Who counts the lines of a long log does not keep others from its beginning.
func TestOthersGoBetween(t *testing.T) {
	l := &endless{reads: make(chan struct{})}
	lens := New(l, Options{})
	counted := make(chan error, 1)
	go func() {
		_, err := lens.Index(t.Context(), "a", time.Hour)
		counted <- err
	}()
	<-l.reads
	got, err := lens.Rows(t.Context(), "a", RowsQuery{From: 1, Count: 2})
	if err != nil || len(got.Lines) != 2 || got.Lines[1].Text != "b" {
		t.Fatalf("%+v: %v", got, err)
	}
	l.stopped.Store(true)
	if err := <-counted; err != nil {
		t.Fatal(err)
	}
}
