package search

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
)

// openRuns returns a host with finished runs of this output.
func openRuns(t *testing.T, outputs ...string) *host.Host {
	t.Helper()
	dir := t.TempDir()
	st, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range outputs {
		at := time.Unix(1_700_000_000+int64(i), 0)
		info := spool.Info{ID: spool.RunID(fmt.Sprintf("run%d", i)), Created: at, Engine: spool.EngineProcess, State: spool.StateRunning}
		j, err := st.Create(info)
		if err != nil {
			t.Fatal(err)
		}
		for seq, e := range []spool.Event{{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte(text)}, {Kind: spool.KindClosed}} {
			e.Seq, e.Time = spool.Seq(seq+1), at
			if err := j.Append(&e); err != nil {
				t.Fatal(err)
			}
		}
		info.State, info.Ended = spool.StateClosed, at
		if err := errors.Join(j.Seal(info), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(host.Options{Dir: dir, Retention: store.Retention{Age: 100 * 365 * 24 * time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestQueriesAreBounded(t *testing.T) {
	h := openRuns(t, strings.Repeat("hit\n", maxHits+10), "hit\n")
	for _, q := range []Query{
		{Pattern: strings.Repeat("x", maxPattern+1)},
		{Pattern: "x", Runs: make([]spool.RunID, maxRuns+1)},
	} {
		if _, err := Search(t.Context(), h, q); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("search %.100q: %v", fmt.Sprint(q), err)
		}
	}
	page, err := Search(t.Context(), h, Query{Pattern: "hit", Limit: 1 << 30, Runs: []spool.RunID{"run0"}})
	if err != nil || len(page.Hits) != maxHits || page.Next == "" {
		t.Errorf("a page of %d hits, next %q: %v", len(page.Hits), page.Next, err)
	}
	n := 0
	for _, err := range Find(t.Context(), h, Query{Pattern: "hit"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != maxHits+11 {
		t.Errorf("%d hits", n)
	}
}

func TestLongLinesAreSearchedInPieces(t *testing.T) {
	text := bytes.Repeat([]byte("x"), 3*maxLine)
	copy(text[2*maxLine+100_000:], "needle")
	m, err := newMatcher(&Query{Pattern: "needle", Literal: true})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newScanner("run", m, place{}, 10)
	for i, part := range [][]byte{text[:maxLine/2], text[maxLine/2 : maxLine*2], text[maxLine*2:]} {
		b, err := record.Append(nil, &spool.Event{Seq: spool.Seq(i + 1), Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: part})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.block(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if len(s.lanes[1].line) > maxLine {
			t.Errorf("%d bytes of a line are held", len(s.lanes[1].line))
		}
	}
	s.finish()
	if len(s.hits) != 1 || s.hits[0].Seq != 3 || s.hits[0].Offset != 0 || len(s.hits[0].Text) > maxText || s.hits[0].Text[s.hits[0].Start:s.hits[0].End] != "needle" {
		t.Errorf("%d hits: %.200q", len(s.hits), fmt.Sprint(s.hits))
	}
}

// TestPagesEndInTime gives pages no time: each of them still makes progress.
func TestPagesEndInTime(t *testing.T) {
	h := openRuns(t, "one hit\n", "no\n", "two hit\n")
	m, err := newMatcher(&Query{Pattern: "hit"})
	if err != nil {
		t.Fatal(err)
	}
	q := Query{Pattern: "hit"}
	var got []string
	for pages := 1; ; pages++ {
		s := &scan{backend: h, match: m, limit: maxHits, deadline: func() time.Time { return time.Unix(0, 0) }}
		from, err := parseCursor(q.After)
		if err != nil {
			t.Fatal(err)
		}
		page, err := s.page(t.Context(), &q, from)
		if err != nil {
			t.Fatal(err)
		}
		for _, hit := range page.Hits {
			got = append(got, string(hit.Run)+" "+hit.Text)
		}
		if page.Next == "" {
			if pages != 4 {
				t.Errorf("%d pages", pages)
			}
			break
		}
		q.After = page.Next
	}
	if want := "[run2 two hit run0 one hit]"; fmt.Sprint(got) != want {
		t.Errorf("hits %v, want %v", got, want)
	}
}

// TestOtherEventsAreSearchedAsText searches the events that are not output.
func TestOtherEventsAreSearchedAsText(t *testing.T) {
	m, err := newMatcher(&Query{Pattern: "ValueError", Literal: true})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newScanner("run", m, place{}, 10)
	b, err := record.Append(nil, &spool.Event{Seq: 1, Kind: "exception", Turn: 1, Data: []byte(`{"name":"ValueError","message":"bad","traceback":"Traceback\n  File x\nValueError: bad"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.block(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if len(s.hits) != 1 || s.hits[0].Text != "ValueError: bad" || s.hits[0].Kind != "exception" || s.hits[0].Turn != 1 {
		t.Errorf("hits %+v", s.hits)
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("abc.run~run~12~1.2.3~2.4.5")
	f.Add("~~~")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseCursor(text)
		if err != nil {
			return
		}
		again, err := parseCursor(c.String())
		if text != "" && (err != nil || again != c) {
			t.Errorf("%q: %+v, %+v, %v", text, c, again, err)
		}
	})
}
