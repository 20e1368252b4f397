package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/search"
)

// find returns the hits of a query as text: the run, the stream and the line.
func find(t *testing.T, b spool.Backend, q search.Query) []string {
	t.Helper()
	var hits []string
	for h, err := range search.Find(t.Context(), b, q) {
		if err != nil {
			t.Fatalf("search %+v: %v", q, err)
		}
		if h.Seq == 0 || h.Time.IsZero() || h.Kind != spool.KindOutput {
			t.Errorf("hit %+v", h)
		}
		hits = append(hits, fmt.Sprintf("%s %s %s", h.Run, h.Stream, h.Text))
	}
	return hits
}

func searches(t *testing.T, b spool.Backend) {
	spec := sh(`echo plain needle; printf '\033[31mnee\033[0mdle in colour\n' >&2; printf 'no newline needle'`)
	spec.ID, spec.Labels = "aone", map[string]string{"kind": "first"}
	collect(t, start(t, b, spec))
	// The reader writes the second half of the line after a line on stderr.
	spec = sh(`printf 'first nee'; echo between >&2; read x; echo "dle last"; echo done; read x`)
	spec.ID, spec.Stdin = "btwo", true
	live := start(t, b, spec)
	awaitText(t, live, "first nee", "between")
	if _, err := live.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("go\n")}); err != nil {
		t.Fatal(err)
	}
	awaitText(t, live, "done\n")
	first := []string{"aone stdout plain needle", "aone stderr needle in colour", "aone stdout no newline needle"}
	second := []string{"btwo stdout first needle last"}
	slices.Sort(first) // two streams have no order
	tests := []struct {
		q    search.Query
		want []string
	}{
		{search.Query{Pattern: "needle", Literal: true}, append(slices.Clone(second), first...)},
		{search.Query{Pattern: "needle", Literal: true, Filter: spool.Filter{Labels: map[string]string{"kind": "first"}}}, first},
		{search.Query{Pattern: "needle", Literal: true, Runs: []spool.RunID{"btwo"}}, second},
		{search.Query{Pattern: "^first n[e]+dle l"}, second},
		{search.Query{Pattern: "IN COLOUR", Literal: true, IgnoreCase: true}, first[:1]},
		{search.Query{Pattern: "n.*dle", Literal: true}, nil},
	}
	for _, tt := range tests {
		got := find(t, b, tt.q)
		for i := range got { // sort the hits of each run
			for j := i; j > 0 && got[j][:4] == got[j-1][:4] && got[j] < got[j-1]; j-- {
				got[j], got[j-1] = got[j-1], got[j]
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("search %+v:\n got %q\nwant %q", tt.q, got, tt.want)
		}
	}
	if err := live.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	collect(t, live)
}

// awaitText reads the log of a run until its output has all of the texts.
func awaitText(t *testing.T, r *spool.Run, texts ...string) {
	t.Helper()
	seen := map[spool.Stream]string{}
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen[e.Stream] += string(e.Bytes)
		missing := slices.ContainsFunc(texts, func(text string) bool {
			return !strings.Contains(seen[spool.Stdout], text) && !strings.Contains(seen[spool.Stderr], text)
		})
		if !missing {
			return
		}
	}
	t.Fatalf("the output ends without %q: %q", texts, seen)
}

func searchPages(t *testing.T, b spool.Backend) {
	var want []string
	for i := range 3 {
		spec := sh(`i=0; while [ $i -lt 25 ]; do echo "line $i"; i=$((i+1)); done`)
		spec.ID = spool.RunID(fmt.Sprintf("run%d", 2-i))
		collect(t, start(t, b, spec))
	}
	for i := range 3 {
		for n := range 25 {
			want = append(want, fmt.Sprintf("run%d stdout line %d", i, n))
		}
	}
	for _, size := range []int{1, 7, 25, 26, 1000} {
		q := search.Query{Pattern: "line", Limit: size}
		var got []string
		for {
			page, err := search.Search(t.Context(), b, q)
			if err != nil || len(page.Hits) > size {
				t.Fatalf("page of %d hits, limit %d: %v", len(page.Hits), size, err)
			}
			for _, h := range page.Hits {
				got = append(got, fmt.Sprintf("%s %s %s", h.Run, h.Stream, h.Text))
			}
			if page.Next == "" {
				break
			}
			q.After = page.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q", size, got)
		}
	}
	if got := find(t, b, search.Query{Pattern: "line", Limit: 30}); !slices.Equal(got, want[:30]) {
		t.Errorf("the first 30: %q", got)
	}
}

func searchErrors(t *testing.T, b spool.Backend) {
	finished(t, b, "aone", "")
	tests := []struct {
		q    search.Query
		want error
	}{
		{search.Query{}, spool.ErrInvalid},
		{search.Query{Pattern: "("}, spool.ErrInvalid},
		{search.Query{Pattern: "a\nb", Literal: true}, spool.ErrInvalid},
		{search.Query{Pattern: strings.Repeat("x", 5000)}, spool.ErrInvalid},
		{search.Query{Pattern: "x", After: "nonsense"}, spool.ErrInvalid},
		{search.Query{Pattern: "x", After: "nonsense~~1"}, spool.ErrInvalid},
		{search.Query{Pattern: "x", Limit: -1}, spool.ErrInvalid},
		{search.Query{Pattern: "x", Filter: spool.Filter{State: "odd"}}, spool.ErrInvalid},
		{search.Query{Pattern: "x", Filter: spool.Filter{Limit: 1}}, spool.ErrInvalid},
		{search.Query{Pattern: "x", Runs: make([]spool.RunID, 1001)}, spool.ErrInvalid},
		{search.Query{Pattern: "x", Runs: []spool.RunID{"aone", "unknown"}}, spool.ErrNotFound},
		{search.Query{Pattern: "x", Runs: []spool.RunID{"aone"}, After: "x~~1"}, spool.ErrInvalid},
		{search.Query{Pattern: "x"}, nil},
	}
	for _, tt := range tests {
		if _, err := search.Search(t.Context(), b, tt.q); !errors.Is(err, tt.want) {
			t.Errorf("search %.200q: %v, want %v", fmt.Sprint(tt.q), err, tt.want)
		}
	}
}
