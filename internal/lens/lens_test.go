package lens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/screen"
)

// logOf is a backend with one run, whose log is in memory.
type logOf struct {
	spool.Backend // has no other methods
	events        []spool.Event
	info          spool.Info
	reads         int
	damaged       spool.Seq // the first event that cannot be read; zero if all can
}

// damage is the error of a log that is damaged.
type damage struct{}

func (damage) Error() string { return "the log is damaged" }
func (damage) Damaged() bool { return true }

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (l *logOf) add(e spool.Event) spool.Seq {
	e.Seq = spool.Seq(len(l.events) + 1)
	e.Time = epoch.Add(time.Duration(e.Seq) * time.Millisecond)
	l.events = append(l.events, e)
	l.info.Last = e.Seq
	l.info.Bytes += int64(len(e.Bytes))
	return e.Seq
}

func (l *logOf) output(s spool.Stream, b []byte) spool.Seq {
	return l.add(spool.Event{Kind: spool.KindOutput, Stream: s, Bytes: b})
}

func (l *logOf) Stat(context.Context, spool.RunID) (spool.Info, error) { return l.info, nil }

func (l *logOf) Read(ctx context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	l.reads++
	page := spool.Page{Next: q.After, Info: l.info}
	for size := 0; int(page.Next) < len(l.events); {
		e := l.events[page.Next]
		if l.damaged != 0 && e.Seq >= l.damaged {
			if len(page.Events) == 0 {
				return page, fmt.Errorf("read after %d: %w", q.After, damage{})
			}
			break
		}
		if size += e.Size(); size > q.MaxBytes && len(page.Events) > 0 {
			break
		}
		page.Events, page.Next = append(page.Events, e), e.Seq
	}
	return page, ctx.Err()
}

// naive splits a log in the obvious way.
func naive(events []spool.Event) []Row {
	var rows []Row
	var text []byte
	open := false
	broken := make(map[spool.Stream]bool)
	finish := func() {
		r := &rows[len(rows)-1]
		r.Text = string(text)
		if len(text) > DefaultLine {
			r.Text, r.Cut = string(text[:DefaultLine]), true
		} else {
			r.Text = strings.TrimSuffix(r.Text, "\r")
		}
		text, open = nil, false
	}
	for i := range events {
		e := &events[i]
		if e.Kind != spool.KindOutput {
			continue
		}
		if open && len(e.Bytes) > 0 && rows[len(rows)-1].Stream != e.Stream {
			broken[rows[len(rows)-1].Stream] = true
			finish()
		}
		for at, c := range e.Bytes {
			if !open {
				rows = append(rows, Row{N: int64(len(rows) + 1), Seq: e.Seq, Offset: at, Time: e.Time, Stream: e.Stream, Continued: broken[e.Stream]})
				open = true
			}
			if c == '\n' {
				delete(broken, e.Stream)
				finish()
				continue
			}
			text = append(text, c)
		}
	}
	if open {
		rows[len(rows)-1].Open = true
		finish()
	}
	return rows
}

// randomLog returns a log whose events begin and end anywhere.
func randomLog(r *rand.Rand, size int64) *logOf {
	l := &logOf{info: spool.Info{ID: "a"}}
	for l.info.Bytes < size {
		stream := spool.Stdout
		if r.IntN(4) == 0 {
			stream = spool.Stderr
		}
		var b []byte
		for range 1 + r.IntN(40) {
			b = fmt.Appendf(b, "%d %s", r.IntN(1000), strings.Repeat("x", r.IntN(1<<r.IntN(12))))
			if r.IntN(3) > 0 {
				b = append(b, "\r\n"[r.IntN(2):]...)
			}
		}
		if r.IntN(20) == 0 {
			b = bytes.Repeat([]byte("long"), 10_000)
		}
		if r.IntN(10) == 0 {
			l.add(spool.Event{Kind: spool.KindNotice, Data: json.RawMessage(`{}`)})
		}
		if r.IntN(30) == 0 {
			b = nil
		}
		l.output(stream, b)
	}
	return l
}

// Lines by number, event and time are those of a split of all the output.
func TestRows(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := randomLog(r, 2<<20)
		want := naive(l.events)
		lens := New(l, Options{})
		get := func(q RowsQuery) Rows {
			t.Helper()
			got, err := lens.Rows(t.Context(), "a", q)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		check := func(what string, got Rows, first int, count int) {
			t.Helper()
			expected := want[min(first, len(want)):min(first+count, len(want))]
			if d := cmp.Diff(expected, got.Lines); d != "" && len(expected)+len(got.Lines) > 0 {
				t.Fatalf("seed %d, %s: %.2000s", seed, what, d)
			}
		}
		for range 40 {
			n, count := r.IntN(len(want)), 1+r.IntN(50)
			got := get(RowsQuery{From: int64(n + 1), Count: count})
			check(fmt.Sprintf("%d lines from %d", count, n+1), got, n, count)
			if next := int64(min(n+count, len(want)) + 1); got.Next != next {
				t.Fatalf("seed %d: after %d lines from %d go on with %d", seed, count, n+1, got.Next)
			}
		}
		check("the last lines", get(RowsQuery{From: -3}), len(want)-3, 3)
		if got := get(RowsQuery{From: -1}); got.Total != int64(len(want)) || !got.Complete {
			t.Errorf("seed %d: %d lines, complete %v; want %d", seed, got.Total, got.Complete, len(want))
		}
		check("beyond the end", get(RowsQuery{From: int64(len(want)) + 5}), len(want), 0)
		for range 20 {
			row := want[r.IntN(len(want))]
			n, err := lens.Number(t.Context(), "a", row.Seq, row.Offset)
			if err != nil || n != row.N {
				t.Fatalf("seed %d: the line at event %d, byte %d has the number %d, want %d: %v", seed, row.Seq, row.Offset, n, row.N, err)
			}
			at := get(RowsQuery{Seq: row.Seq, Count: 1}).Lines[0]
			if at.N > row.N || at.Seq > row.Seq {
				t.Fatalf("seed %d: event %d begins in line %d of event %d", seed, row.Seq, at.N, at.Seq)
			}
			if since := get(RowsQuery{Time: row.Time, Count: 1}).Lines[0]; since.N != at.N {
				t.Fatalf("seed %d: line %d at %v, want %d", seed, since.N, row.Time, at.N)
			}
		}
		// Only some streams; the numbers are those of all lines.
		errs := get(RowsQuery{From: 1, Streams: []spool.Stream{spool.Stderr}}).Lines
		for _, row := range errs {
			if row.Stream != spool.Stderr || cmp.Diff(want[row.N-1], row) != "" {
				t.Fatalf("seed %d: line %+v, want %+v", seed, row, want[row.N-1])
			}
		}
	}
}

// An index goes on where it ended, and says what the output is.
func TestIndex(t *testing.T) {
	l := randomLog(rand.New(rand.NewPCG(7, 7)), 1<<20)
	lens := New(l, Options{})
	got, err := lens.Index(t.Context(), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if want := naive(l.events); got.Lines != int64(len(want)) || got.Bytes != l.info.Bytes || got.Last != l.info.Last || !got.Complete || got.First != 1 {
		t.Errorf("index %+v of %d lines and %d bytes", got, len(want), l.info.Bytes)
	}
	for i, p := range got.Points {
		if before := naive(l.events[:p.Seq-1]); p.Lines > int64(len(before)) || p.Lines < int64(len(before))-1 {
			t.Errorf("point %d has %d lines before event %d, want %d", i, p.Lines, p.Seq, len(before))
		}
		if i > 0 && p.Bytes-got.Points[i-1].Bytes < pointBytes && p.Time.Sub(got.Points[i-1].Time) < pointTime {
			t.Errorf("points %d and %d are too close", i-1, i)
		}
	}
	l.output(spool.Stdout, []byte("more\nlines\n"))
	reads := l.reads
	again, err := lens.Index(t.Context(), "a", time.Hour)
	if err != nil || again.Bytes != got.Bytes+11 || l.reads != reads+1 {
		t.Errorf("after more output %d bytes in %d reads: %v", again.Bytes, l.reads-reads, err)
	}
}

// A row says what was cut and what is not UTF-8.
func TestRowText(t *testing.T) {
	l := &logOf{info: spool.Info{ID: "a"}}
	l.output(spool.Stdout, []byte("a\xffb\n"))
	l.output(spool.Stdout, append(bytes.Repeat([]byte("ä"), DefaultLine), '\n'))
	got, err := New(l, Options{}).Rows(t.Context(), "a", RowsQuery{From: 1})
	if err != nil || len(got.Lines) != 2 {
		t.Fatal(got, err)
	}
	if r := got.Lines[0]; r.Text != "a\ufffdb" || !r.Raw || r.Cut {
		t.Errorf("row %+v", r)
	}
	if r := got.Lines[1]; r.Raw || !r.Cut || r.Text != strings.Repeat("ä", DefaultLine/2) {
		t.Errorf("row of %d bytes, cut %v, raw %v", len(r.Text), r.Cut, r.Raw)
	}
}

// The screen after an event is that of a replay from the beginning, also when screens
// in between are known.
func TestScreen(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	l := &logOf{info: spool.Info{ID: "a", TTY: true, FirstSize: spool.Size{Rows: 10, Cols: 40}, Size: spool.Size{Rows: 10, Cols: 40}}}
	for i := 0; l.info.Bytes < 9<<18; i++ {
		if i%700 == 500 {
			to := spool.Size{Rows: uint16(5 + r.IntN(30)), Cols: uint16(20 + r.IntN(100))}
			data, err := json.Marshal(spool.Resized{Size: to, Was: l.info.Size})
			if err != nil {
				t.Fatal(err)
			}
			l.add(spool.Event{Kind: spool.KindResized, Data: data})
			l.info.Size = to
		}
		var b []byte
		for range 30 {
			b = fmt.Appendf(b, "\x1b[%d;%dH\x1b[3%dm%d", 1+r.IntN(30), 1+r.IntN(100), r.IntN(8), r.IntN(10000))
		}
		l.output(spool.PTY, b)
	}
	lens := New(l, Options{})
	for n := range 4 {
		at := spool.Seq(1 + r.IntN(len(l.events)))
		if n == 1 { // so that a screen is kept
			at = l.info.Last
		}
		then := l.info
		then.Last = at
		want, err := screen.Replay(t.Context(), spool.Attach(l, "a"), &then)
		if err != nil {
			t.Fatal(err)
		}
		got, err := lens.Screen(t.Context(), "a", ScreenQuery{At: at})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want.Rows(), got.Rows()); d != "" || !got.Exact || !bytes.Equal(want.Paint(50, 150), got.Paint(50, 150)) {
			t.Fatalf("the screen after event %d is another one (exact %v):\n%s", at, got.Exact, d)
		}
	}
	if n := len(lens.views["a"].screens); n == 0 || n > DefaultCheckpoints {
		t.Errorf("%d screens are kept", n)
	}
	quick, err := New(l, Options{}).Screen(t.Context(), "a", ScreenQuery{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	rows, cols := quick.Size()
	if rows != int(l.info.Size.Rows) || cols != int(l.info.Size.Cols) || quick.Read > 4*screen.Window {
		t.Errorf("a quick screen of %d rows and %d columns read %d bytes", rows, cols, quick.Read)
	}
	l.info.TTY = false
	if _, err := lens.Screen(t.Context(), "a", ScreenQuery{}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("without a terminal: %v", err)
	}
}

// What is not used is dropped, and so is what takes too much memory.
func TestForget(t *testing.T) {
	l := randomLog(rand.New(rand.NewPCG(1, 9)), 1<<20)
	lens := New(l, Options{Memory: 1})
	for _, id := range []spool.RunID{"a", "b", "c"} {
		if _, err := lens.Index(t.Context(), id, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if len(lens.views) != 0 {
		t.Errorf("%d logs are remembered", len(lens.views))
	}
	lens = New(l, Options{Idle: time.Nanosecond})
	for _, id := range []spool.RunID{"a", "b"} {
		if _, err := lens.Index(t.Context(), id, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept := lens.views["a"]; kept {
		t.Error("an idle log is remembered")
	}
}

// A caller that waits for another one can leave.
func TestEnterEnds(t *testing.T) {
	lens := New(&logOf{}, Options{})
	_, done, err := lens.enter(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lens.Index(ctx, "a", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// Numbers of many places are those of each.
func TestNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	l := randomLog(r, 3<<20)
	lens := New(l, Options{})
	var places []Place
	for seq := spool.Seq(1); seq <= l.info.Last+3; seq += spool.Seq(1 + r.IntN(1+r.IntN(400))) {
		offset := 0
		if seq <= l.info.Last {
			offset = r.IntN(len(l.events[seq-1].Bytes) + 1)
		}
		for range 1 + r.IntN(2) {
			places = append(places, Place{seq, offset})
		}
	}
	got, err := lens.Numbers(t.Context(), "a", places)
	if err != nil || len(got) != len(places) {
		t.Fatalf("%d numbers of %d places, %v", len(got), len(places), err)
	}
	for i, p := range places {
		want, err := lens.Number(t.Context(), "a", p.Seq, p.Offset)
		if err != nil || got[i] != want {
			t.Fatalf("%+v is in line %d, not %d, %v", p, want, got[i], err)
		}
	}
}

// A page of long lines ends before it is too large, and the next goes on.
func TestRowsAreBounded(t *testing.T) {
	l := &logOf{info: spool.Info{ID: "a"}}
	for range 3 * DefaultBytes / DefaultLine {
		l.output(spool.Stdout, bytes.Repeat([]byte("x"), DefaultLine-1))
		l.output(spool.Stdout, []byte("\n"))
	}
	lens := New(l, Options{})
	next, pages := int64(1), 0
	for next <= 3*DefaultBytes/DefaultLine {
		rows, err := lens.Rows(t.Context(), "a", RowsQuery{From: next})
		if err != nil || len(rows.Lines) == 0 || rows.Lines[0].N != next || len(rows.Lines) > DefaultBytes/DefaultLine+1 {
			t.Fatalf("from %d there are %d lines, %v", next, len(rows.Lines), err)
		}
		next = rows.Next
		pages++
	}
	if pages != 3 {
		t.Errorf("%d pages", pages)
	}
	for o, want := range map[Options]int{{Rows: 5}: 5, {Bytes: 3 * DefaultLine}: 4, {Bytes: 50, Line: 10}: 5} {
		rows, err := New(l, o).Rows(t.Context(), "a", RowsQuery{})
		if err != nil || len(rows.Lines) != want || o.Line > 0 && (len(rows.Lines[0].Text) != o.Line || !rows.Lines[0].Cut) {
			t.Errorf("with %+v there are %d lines, %v", o, len(rows.Lines), err)
		}
	}
}

// A run that gets the id of another has an index of its own.
func TestRemovedRun(t *testing.T) {
	l := &logOf{info: spool.Info{ID: "a"}}
	l.output(spool.Stdout, []byte("1\n2\n3\n"))
	lens := New(l, Options{})
	if rows, err := lens.Rows(t.Context(), "a", RowsQuery{}); err != nil || rows.Total != 3 {
		t.Fatal(rows, err)
	}
	l.events, l.info = nil, spool.Info{ID: "a", Created: epoch}
	l.output(spool.Stdout, []byte("4\n"))
	if rows, err := lens.Rows(t.Context(), "a", RowsQuery{}); err != nil || rows.Total != 1 || rows.Lines[0].Text != "4" {
		t.Fatal(rows, err)
	}
}

// terminalLog is a log of numbered lines on a terminal, each with a long title of its window.
func terminalLog(size int64) (l *logOf, lines int) {
	title := "\x1b]0;" + strings.Repeat("t", 1000) + "\x07"
	l = &logOf{info: spool.Info{ID: "a", TTY: true, FirstSize: spool.Size{Rows: 10, Cols: 80}, Size: spool.Size{Rows: 10, Cols: 80}}}
	for l.info.Bytes < size {
		var b []byte
		for range 50 {
			lines++
			b = fmt.Appendf(b, title+"\x1b[3%dmline\x1b[m %d\r\n", lines%8, lines)
		}
		l.output(spool.PTY, b)
	}
	return l, lines
}

// Of the screens of a run only so many are kept, and the last is among them.
func TestCheckpointsAreBounded(t *testing.T) {
	l, _ := terminalLog(4 * checkpointBytes)
	for _, most := range []int{1, 2} {
		lens := New(l, Options{Checkpoints: most})
		if _, err := lens.Screen(t.Context(), "a", ScreenQuery{}); err != nil {
			t.Fatal(err)
		}
		kept := lens.views["a"].screens
		if len(kept) == 0 || len(kept) > most || kept[len(kept)-1].Last < l.info.Last/2 {
			t.Errorf("%d of %d screens are kept", len(kept), most)
		}
	}
}

// The lines above a screen are those that went off its top, also if the screen is drawn
// from one that is kept.
func TestScreenBack(t *testing.T) {
	l, lines := terminalLog(3 * checkpointBytes)
	lens := New(l, Options{})
	if _, err := lens.Screen(t.Context(), "a", ScreenQuery{}); err != nil { // so that screens are kept
		t.Fatal(err)
	}
	for _, q := range []ScreenQuery{{Back: 1}, {Back: 100}, {Back: 2000}, {Back: 2000, Styled: true}, {Back: 2000, Quick: true}, {Back: lines}} {
		s, err := lens.Screen(t.Context(), "a", q)
		if err != nil {
			t.Fatal(err)
		}
		back := s.Back()
		above := lines - 9 // the last row is empty
		if want := min(q.Back, above); len(back) != want && !q.Quick || len(back) < want/2 {
			t.Errorf("%+v has %d lines above it, want %d", q, len(back), want)
			continue
		}
		for i, line := range back {
			n := above - len(back) + i + 1
			want := fmt.Sprintf("line %d", n)
			if q.Styled && n%8 != 0 && !strings.Contains(line, "\x1b[") {
				t.Fatalf("line %d is %q", n, line)
			}
			if !q.Styled && line != want {
				t.Fatalf("line %d is %q", n, line)
			}
		}
	}
	if kept := lens.views["a"].screens; len(kept) == 0 || len(kept[0].Back()) != 0 {
		t.Error("lines are kept with screens")
	}
}
