package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// endless is a backend with more than fits into an answer.
type endless struct {
	spool.Backend
	argv []string
	size int // of an event
	many int // events of a page
}

func (b *endless) List(_ context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		for i := range f.Limit {
			if !yield(spool.Info{ID: spool.RunID(fmt.Sprintf("r%d", i)), Engine: "process", Argv: b.argv, Created: time.Unix(0, int64(i))}, nil) {
				return
			}
		}
	}
}

func (b *endless) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	page := spool.Page{Next: q.After, Info: spool.Info{ID: "r", Engine: "process", Last: 1 << 40, State: spool.StateRunning}}
	for range b.many {
		page.Next++
		page.Events = append(page.Events, spool.Event{Run: "r", Seq: page.Next, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: make([]byte, b.size)})
	}
	return page, nil
}

// TestAnswersAreBounded checks that answers end before they are too large, and say
// where to go on, and that no query asks for more.
func TestAnswersAreBounded(t *testing.T) {
	ask := func(b spool.Backend, path string, v any) *httptest.ResponseRecorder {
		t.Helper()
		s := New(Options{Backend: b})
		defer s.Close(0)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		return w
	}
	var list RunList
	if ask(&endless{}, "/v1/runs?limit=1000", &list); len(list.Runs) != maxListPage || list.Next != list.Runs[maxListPage-1].Cursor() {
		t.Errorf("a list of %d runs goes on at %q", len(list.Runs), list.Next)
	}
	large := []string{strings.Repeat("x", 1<<20)}
	if ask(&endless{argv: large}, "/v1/runs", &list); len(list.Runs) != maxListBytes>>20 || list.Next == "" {
		t.Errorf("a list of %d runs with long command lines goes on at %q", len(list.Runs), list.Next)
	}
	var page EventPage
	if ask(&endless{many: maxPageEvents + 10}, "/v1/runs/r/events", &page); len(page.Events) != maxPageEvents || page.Next != maxPageEvents {
		t.Errorf("a page of %d events goes on at %d", len(page.Events), page.Next)
	}
	if ask(&endless{many: 1, size: 1 << 20}, "/v1/runs/r/events?kind=closed", &page); len(page.Events) != 0 || page.Next != maxSkimBytes>>20+1 {
		t.Errorf("a page of nothing goes on at %d", page.Next)
	}
	for _, path := range []string{
		"/v1/runs?limit=1001", "/v1/runs?limit=0", "/v1/runs/r/turns?limit=1001", "/v1/search?q=x&limit=1001", "/v1/runs/r/events?max_bytes=8388609", "/v1/runs/r/lines?count=2001",
	} {
		var p Problem
		if w := ask(&endless{}, path, &p); w.Code != 400 || p.Code != "invalid" || len(p.Errors) != 1 {
			t.Errorf("%s: %d %+v", path, w.Code, p)
		}
	}
	var p Problem
	if w := ask(&endless{}, "/v1/runs/r/search?q="+strings.Repeat("x", maxPattern+1), &p); w.Code != 400 || p.Code != "invalid" {
		t.Errorf("a long pattern: %d %+v", w.Code, p)
	}
}
