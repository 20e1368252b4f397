package search

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/logtext"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
	"github.com/spool-run/spool/internal/store"
)

// unsifted is a backend without sieves.
type unsifted struct{ spool.Backend }

func (u unsifted) ReadRecords(ctx context.Context, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	return record.Read(ctx, u.Backend, id, q, dst)
}

// memory is a backend with one run, and the sieves of its segments.
type memory struct {
	spool.Backend
	events []spool.Event
	notes  [][]byte
	most   int // events of a read
	passed int // parts that a search need not read
}

func (m *memory) List(context.Context, spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) { yield(m.info(), nil) }
}

func (m *memory) info() spool.Info {
	return spool.Info{ID: "run", State: spool.StateClosed, Last: spool.Seq(len(m.events))}
}

func (m *memory) ReadRecords(_ context.Context, _ spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	var err error
	for _, e := range m.events[q.After:min(int(q.After)+m.most, len(m.events))] {
		if dst, err = record.Append(dst, &e); err != nil {
			return nil, spool.Page{}, err
		}
	}
	return dst, spool.Page{Info: m.info()}, nil
}

func (m *memory) Sift(_ context.Context, _ spool.RunID, after spool.Seq, q *sieve.Query, buf []byte) ([]sieve.Part, []byte, error) {
	for _, notes := range m.notes {
		parts, err := sieve.Read(notes, q)
		if err != nil {
			return nil, buf, err
		}
		if parts = sieve.After(parts, after); len(parts) > 0 {
			for i := range parts {
				if !parts[i].May {
					m.passed++
				}
			}
			return parts, buf, nil
		}
	}
	return nil, buf, nil
}

// newMemory makes the sieves of a log, in segments and groups of random sizes. Some
// segments have none.
func newMemory(t testing.TB, r *rand.Rand, events []spool.Event) *memory {
	t.Helper()
	m := &memory{events: events, most: 1 + r.IntN(8)}
	b := sieve.NewBuilder()
	b.GroupBytes = int64(1 + r.IntN(2000))
	for i := 0; i < len(events); {
		n := min(1+r.IntN(30), len(events)-i)
		for _, e := range events[i : i+n] {
			raw, err := record.Append(nil, &e)
			if err == nil {
				_, _, err = b.AddRecords(raw, 0)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		i += n
		if notes := b.Notes(); r.IntN(5) > 0 {
			m.notes = append(m.notes, notes)
		}
	}
	return m
}

// findAll returns all hits, in pages of random sizes.
func findAll(t testing.TB, r *rand.Rand, b spool.Backend, q Query) []string {
	t.Helper()
	var all []string
	for pages := 0; ; pages++ {
		if pages > 5000 {
			t.Fatal("the search does not end")
		}
		q.Limit = 1 + r.IntN(1+r.IntN(20))
		page, err := scanPage(t.Context(), b, q)
		if err != nil || len(page.Errors) > 0 {
			t.Fatal(err, page.Errors)
		}
		for _, h := range page.Hits {
			all = append(all, fmt.Sprintf("%d.%d %s %q", h.Seq, h.Offset, h.Stream, h.Text))
		}
		if page.Next == "" {
			return all
		}
		q.After = page.Next
	}
}

// TestSieveLosesNothing compares searches with sieves to those without, for logs in
// events, groups, segments and pages of any size.
func TestSieveLosesNothing(t *testing.T) {
	queries := []Query{
		{Pattern: "error", Literal: true}, {Pattern: "error", Literal: true, IgnoreCase: true}, {Pattern: "ERROR", Literal: true}, {Pattern: "(errorx|xerror|rorx)"},
		{Pattern: "error.*error"}, {Pattern: "^error$"}, {Pattern: "xxxx"}, {Pattern: "or x e", Literal: true}, {Pattern: "(?i)taſks"}, {Pattern: "code", Literal: true},
		{Pattern: "task", Literal: true, IgnoreCase: true}, {Pattern: "xerrorx", Literal: true}, {Pattern: "(error)+x?"}, {Pattern: "éerr", Literal: true, IgnoreCase: true},
		{Pattern: "abcd", Literal: true}, {Pattern: "\uFFFDerror"}, {Pattern: "error|ERROR|task"}, {Pattern: "exit"},
	}
	passed, found := 0, 0
	for seed := range uint64(700) {
		r := rand.New(rand.NewPCG(seed, 2))
		events := randomLog(r)
		for range r.IntN(4) {
			events = append(events, randomLog(r)...)
		}
		for i := range events {
			events[i].Seq = spool.Seq(i + 1)
			if r.IntN(20) == 0 && events[i].Stream != "" {
				events[i].Bytes = append(events[i].Bytes, []string{"tas\u212a", "ta\u017fk", "TASK", "abcd", "\xfferror"}[r.IntN(5)]...)
			}
		}
		m := newMemory(t, r, events)
		q := queries[r.IntN(len(queries))]
		got, want := findAll(t, r, m, q), findAll(t, r, unsifted{m}, q)
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d: %+v:\n got %v\nwant %v\n%+v", seed, q, got, want, events)
		}
		passed += m.passed
		found += len(want)
	}
	if passed == 0 || found == 0 {
		t.Errorf("%d parts were passed over, %d lines found", passed, found)
	}
}

// writeLog writes a finished run.
func writeLog(t testing.TB, st *store.Store, id spool.RunID, text []byte, size func() int) {
	t.Helper()
	at := time.Unix(1_700_000_000, 0)
	info := spool.Info{ID: id, Created: at, Engine: spool.EngineProcess, State: spool.StateRunning}
	j, err := st.Create(info)
	if err != nil {
		t.Fatal(err)
	}
	seq := spool.Seq(1)
	add := func(e spool.Event) {
		e.Seq, e.Time = seq, at
		if err := j.Append(&e); err != nil {
			t.Fatal(err)
		}
		seq++
	}
	for i := 0; len(text) > 0; i++ {
		n := min(size(), len(text))
		add(spool.Event{Kind: spool.KindOutput, Stream: lanes[1+i%7/6], Bytes: text[:n]})
		text = text[n:]
	}
	add(spool.Event{Kind: spool.KindExited, Data: []byte(`{"code":3}`)})
	add(spool.Event{Kind: spool.KindClosed})
	info.State, info.Ended = spool.StateClosed, at
	if err := errors.Join(j.Seal(info), j.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCompressedLogsAreSearched compares the hits in logs before and after they are
// compressed, through a host.
func TestCompressedLogsAreSearched(t *testing.T) {
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{SegmentBytes: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(7, 7))
	text := logtext.New(3).Append(nil, 5<<20)
	for i, at := range []int{100, 1 << 20, 2<<20 - 300, 5<<20 - 1000} {
		copy(text[at:], fmt.Sprintf("Xylophone%d", i))
	}
	long := slices.Repeat([]byte("0123456789abcdef"), 5<<20/4/16)
	copy(long[1<<20+1000:], "xylophone")
	copy(text[3<<20:], long)
	writeLog(t, st, "large", text, func() int { return 1 + r.IntN(64<<10) })
	writeLog(t, st, "small", text[:1<<20], func() int { return 1 + r.IntN(300) })
	queries := []Query{
		{Pattern: "Xylophone", Literal: true}, {Pattern: "xylophone", Literal: true, IgnoreCase: true}, {Pattern: "ylophone[02]"},
		{Pattern: "sha256:0f", Literal: true}, {Pattern: "(xylo|Xylo)phone"}, {Pattern: "exit code 3", Literal: true}, {Pattern: "nowhere to be found", Literal: true},
	}
	search := func() [][]string {
		h, err := host.Open(host.Options{Dir: dir, Retention: store.Retention{Age: 100 * 365 * 24 * time.Hour, Compress: -1}})
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		var all [][]string
		for _, q := range queries {
			all = append(all, findAll(t, r, h, q))
		}
		page, err := Search(t.Context(), h, queries[len(queries)-1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, []string{fmt.Sprint(page.Bytes < 1<<19)})
		return all
	}
	want := search()
	for _, id := range []spool.RunID{"large", "small"} {
		if _, err := st.Compress(t.Context(), id, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	got := search()
	for i := range queries {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("%+v: %d hits, and %d before", queries[i], len(got[i]), len(want[i]))
		}
	}
	if len(want[0]) != 5 || len(want[3]) == 0 {
		t.Errorf("%d and %d hits", len(want[0]), len(want[3]))
	}
	if got[len(queries)][0] != "true" {
		t.Error("a search for what is not there read the logs")
	}
}
