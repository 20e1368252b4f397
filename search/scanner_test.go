package search

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/visible"
)

// line is a line of a log, and where it begins and ends.
type line struct {
	seq    spool.Seq
	offset int
	end    position
	text   string
}

// split returns the lines of a log, in the order in which they end, the simple way.
func split(events []spool.Event, most int) []line {
	var all []line
	for _, stream := range lanes[1:] {
		var text []byte
		var at []position // of every byte
		for _, e := range events {
			if e.Kind == spool.KindOutput && e.Stream == stream {
				for i := range e.Bytes {
					at = append(at, position{e.Seq, i})
				}
				text = append(text, e.Bytes...)
			}
		}
		for begin := 0; begin < len(text); {
			n := bytes.IndexByte(text[begin:], '\n')
			end := begin + n
			if n < 0 {
				end = len(text)
			}
			for more := true; more; {
				stop := min(begin+most, end)
				l := line{seq: at[begin].seq, offset: at[begin].offset, text: string(text[begin:stop])}
				// A piece ends with the byte after it, the rest with the log.
				if stop < len(text) {
					l.end = at[stop]
				} else {
					l.end = position{seq: 1 << 60, offset: slices.Index(lanes[:], stream)}
				}
				all = append(all, l)
				begin, more = stop, stop < end
			}
			begin++
		}
	}
	slices.SortStableFunc(all, func(a, b line) int {
		if a.end.seq != b.end.seq {
			return int(a.end.seq) - int(b.end.seq)
		}
		return a.end.offset - b.end.offset
	})
	for i := range all {
		all[i].text = visible.Unstyled(strings.TrimSuffix(all[i].text, "\r"))
	}
	return all
}

// randomLog returns output in parts that end anywhere.
func randomLog(r *rand.Rand) []spool.Event {
	words := []string{"err", "or", "error", "e", "\n", "\n", "\r\n", "\x1b[31m", "\x1b[0m", "\x1b", "[1m", "x", " ", "ERROR", "é", "\x1b]0;t\x07"}
	var events []spool.Event
	for seq := range spool.Seq(r.IntN(30)) {
		e := spool.Event{Seq: seq + 1, Time: time.Unix(int64(seq), 0).UTC(), Kind: spool.KindOutput, Stream: lanes[1+r.IntN(2)]}
		for range r.IntN(12) {
			e.Bytes = append(e.Bytes, words[r.IntN(len(words))]...)
		}
		if r.IntN(8) == 0 {
			e = spool.Event{Seq: seq + 1, Time: e.Time, Kind: spool.KindExited, Data: []byte(`{"code":1}`)}
		}
		events = append(events, e)
	}
	return events
}

// hitsOf searches a log in blocks of random sizes and pages of random sizes.
func hitsOf(t *testing.T, r *rand.Rand, events []spool.Event, m *matcher, most int) []Hit {
	t.Helper()
	var all []Hit
	var at place
	for pages := 0; ; pages++ {
		if pages > 2000 {
			t.Fatal("the search does not end")
		}
		limit := 1 + r.IntN(4)
		if r.IntN(3) == 0 {
			limit = 1000
		}
		s, after := newScanner("run", m, at, limit)
		s.maxLine = most
		more := true
		for i := int(after); i < len(events) && more; {
			n := min(len(events)-i, 1+r.IntN(6))
			var b []byte
			for j := i; j < i+n; j++ {
				var err error
				if b, err = record.Append(b, &events[j]); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if more, err = s.block(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			i += n
			if more && s.next > at.next && r.IntN(4) == 0 { // as after a deadline
				break
			}
		}
		done := more && int(s.next) > len(events) && s.finish()
		all = append(all, s.hits...)
		if done {
			return all
		}
		at = s.place()
		c := cursor{before: "x.y", run: "run", at: at}
		if got, err := parseCursor(c.String()); err != nil || got != c {
			t.Fatalf("cursor %q: %+v, %v", c, got, err)
		}
	}
}

// TestSearchEqualsNaive compares the hits with those of a simple search in the whole
// output, for logs in parts of any size, read in blocks and pages of any size.
func TestSearchEqualsNaive(t *testing.T) {
	queries := []Query{
		{Pattern: "error", Literal: true}, {Pattern: "error"}, {Pattern: "error", Literal: true, IgnoreCase: true},
		{Pattern: "^error"}, {Pattern: "(err|x)or"}, {Pattern: "e$"}, {Pattern: "^$"}, {Pattern: "é", Literal: true}, {Pattern: "x+ *e"},
		{Pattern: "or", Literal: true}, {Pattern: "[0", Literal: true}, {Pattern: "(?i)ERR"},
	}
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		events := randomLog(r)
		q := queries[r.IntN(len(queries))]
		most := []int{1, 2, 5, 13, 1000}[r.IntN(5)]
		m, err := newMatcher(&q)
		if err != nil {
			t.Fatal(err)
		}
		expr := q.Pattern
		if q.Literal {
			expr = regexp.QuoteMeta(expr)
		}
		if q.IgnoreCase {
			expr = "(?i)" + expr
		}
		re := regexp.MustCompile(expr)
		var want []string
		for _, l := range split(events, most) {
			if re.MatchString(l.text) {
				want = append(want, fmt.Sprintf("%d.%d %q", l.seq, l.offset, strings.ToValidUTF8(l.text, "\uFFFD")))
			}
		}
		var got []string
		for _, h := range hitsOf(t, r, events, m, most) {
			got = append(got, fmt.Sprintf("%d.%d %q", h.Seq, h.Offset, h.Text))
			if e := events[h.Seq-1]; h.Stream != e.Stream || !h.Time.Equal(e.Time) || h.Kind != e.Kind {
				t.Errorf("seed %d: hit %+v of event %+v", seed, h, e)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %+v in pieces of %d:\n got %v\nwant %v\n%+v", seed, q, most, got, want, events)
		}
	}
}
