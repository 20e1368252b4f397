package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
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

// askOf sends a request to a server with these options, and decodes the answer.
func askOf(t *testing.T, o Options, path string, v any) *httptest.ResponseRecorder {
	t.Helper()
	s := New(o)
	defer s.Close(0)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", path, nil))
	if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return w
}

// TestAnswersAreBounded checks that answers end before they are too large, and say
// where to go on, and that no query asks for more.
func TestAnswersAreBounded(t *testing.T) {
	ask := func(b spool.Backend, path string, v any) *httptest.ResponseRecorder {
		t.Helper()
		return askOf(t, Options{Backend: b}, path, v)
	}
	var list RunList
	if ask(&endless{}, "/v1/runs?limit=1000", &list); len(list.Runs) != DefaultList || list.Next != list.Runs[DefaultList-1].Cursor() {
		t.Errorf("a list of %d runs goes on at %q", len(list.Runs), list.Next)
	}
	large := []string{strings.Repeat("x", 1<<20)}
	if ask(&endless{argv: large}, "/v1/runs", &list); len(list.Runs) != DefaultListBytes>>20 || list.Next == "" {
		t.Errorf("a list of %d runs with long command lines goes on at %q", len(list.Runs), list.Next)
	}
	var page EventPage
	if ask(&endless{many: DefaultPageEvents + 10}, "/v1/runs/r/events", &page); len(page.Events) != DefaultPageEvents || page.Next != DefaultPageEvents {
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
	few := Limits{List: 3, ListBytes: 10, Page: 100, PageEvents: 5, Lines: 4, Hits: 6, Pattern: 7, Scrollback: 8}
	for _, path := range []string{
		"/v1/runs?limit=4", "/v1/search?q=x&limit=7", "/v1/search?q=xxxxxxxx", "/v1/runs/r/events?max_bytes=101", "/v1/runs/r/lines?count=5", "/v1/runs/r/screen?scrollback=9",
	} {
		var p Problem
		if w := askOf(t, Options{Backend: &endless{}, Limits: few}, path, &p); w.Code != 400 || p.Code != "invalid" {
			t.Errorf("%s with lower limits: %d %+v", path, w.Code, p)
		}
	}
	if askOf(t, Options{Backend: &endless{many: 10}, Limits: few}, "/v1/runs/r/events", &page); len(page.Events) != 5 || page.Next != 5 {
		t.Errorf("a page of %d events goes on at %d", len(page.Events), page.Next)
	}
	if askOf(t, Options{Backend: &endless{}, Limits: few}, "/v1/runs", &list); len(list.Runs) != 3 || list.Next == "" {
		t.Errorf("a list of %d runs goes on at %q", len(list.Runs), list.Next)
	}
	var p Problem
	if w := ask(&endless{}, "/v1/runs/r/screen?scrollback=2001", &p); w.Code != 400 || p.Code != "invalid" {
		t.Errorf("many lines above a screen: %d %+v", w.Code, p)
	}
	if w := ask(&endless{}, "/v1/runs/r/search?q="+strings.Repeat("x", DefaultPattern+1), &p); w.Code != 400 || p.Code != "invalid" {
		t.Errorf("a long pattern: %d %+v", w.Code, p)
	}
}

// paged is a backend with one run whose log is long, and remembers how much was read at once.
type paged struct {
	spool.Backend
	events []spool.Event
	most   int // bytes that a read may have
}

func (b *paged) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	b.most = max(b.most, q.MaxBytes)
	page := spool.Page{Next: q.After, Info: spool.Info{ID: "r", Engine: "process", Last: spool.Seq(len(b.events)), State: spool.StateClosed}}
	for size := 0; int(page.Next) < len(b.events); {
		e := b.events[page.Next]
		if size += len(e.Bytes); size > q.MaxBytes && len(page.Events) > 0 {
			break
		}
		page.Events, page.Next = append(page.Events, e), e.Seq
	}
	return page, nil
}

// measured is a client that remembers the largest piece that it was given.
type measured struct {
	*httptest.ResponseRecorder
	most int
}

func (w *measured) Write(p []byte) (int, error) {
	w.most = max(w.most, len(p))
	return w.ResponseRecorder.Write(p)
}

// TestStreamPages checks that a stream reads and writes no more at once than its limit,
// also if an event alone is larger, and that nothing is missing.
func TestStreamPages(t *testing.T) {
	for _, limit := range []int{0, 1000} {
		want := cmp.Or(limit, DefaultStreamPage)
		b := &paged{}
		for i := range 40 {
			size := want / 10
			if i == 20 {
				size = 3 * want
			}
			b.events = append(b.events, spool.Event{Run: "r", Seq: spool.Seq(i + 1), Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: bytes.Repeat([]byte{'x'}, size)})
		}
		for _, form := range []string{formSSE, formNDJSON} {
			s := New(Options{Backend: b, Limits: Limits{StreamPage: limit}})
			w := &measured{ResponseRecorder: httptest.NewRecorder()}
			r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/runs/r/events", nil)
			r.Header.Set("Accept", form)
			s.ServeHTTP(w, r)
			s.Close(0)
			if b.most != want || w.most > want || w.most < want/2 {
				t.Errorf("%s with a limit of %d reads %d bytes and writes %d", form, want, b.most, w.most)
			}
			if n := bytes.Count(w.Body.Bytes(), []byte("x")); n < 3*want+39*(want/10) {
				t.Errorf("%s with a limit of %d has %d bytes", form, want, n)
			}
		}
	}
}

// holder is a backend whose run shows a blob.
type holder struct {
	spool.Backend
	blob    []byte
	seeking bool // the blob can be read from anywhere
}

func (b *holder) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	data := fmt.Sprintf(`{"image/png":{"blob":%q,"size":%d}}`, spool.Digest("sha256:"+strings.Repeat("0", 64)), len(b.blob))
	e := spool.Event{Run: "r", Seq: 1, Kind: "display", Data: json.RawMessage(data)}
	return spool.Page{Next: 1, Events: []spool.Event{e}, Info: spool.Info{ID: "r", Engine: "kernel", Last: 1}}, nil
}

func (b *holder) Blob(context.Context, spool.RunID, spool.Digest) (io.ReadCloser, error) {
	if b.seeking {
		return seeking{bytes.NewReader(b.blob)}, nil
	}
	return io.NopCloser(bytes.NewReader(b.blob)), nil
}

type seeking struct{ *bytes.Reader }

func (seeking) Close() error { return nil }

// TestBlobsAreBounded asks for blobs and forms at and above the limit of an answer: the
// whole is refused above it, and parts are not.
func TestBlobsAreBounded(t *testing.T) {
	const limit = 1000
	blob := "/v1/runs/r/blobs/sha256:" + strings.Repeat("0", 64)
	for _, tt := range []struct {
		path, method, span string
		size               int
		seeking            bool
		status             int
	}{
		{blob, "GET", "", limit, true, 200},
		{blob, "GET", "", limit + 1, true, 413},
		{blob, "HEAD", "", limit + 1, true, 200},
		{blob, "GET", "bytes=0-999", limit + 1, true, 206},
		{blob, "GET", "bytes=1-", limit + 1, true, 206},
		{blob, "GET", "bytes=0-", limit + 1, true, 413},
		{blob, "GET", "bytes=0-600,500-1000", limit + 1, true, 413},
		{blob, "GET", "bytes=2000-", limit + 1, true, 416},
		{blob, "GET", "", limit, false, 200},
		{blob, "GET", "", limit + 1, false, 0},
		{"/v1/runs/r/events/1/forms/image/png", "GET", "", limit / 2, true, 200},
		{"/v1/runs/r/events/1/forms/image/png", "GET", "", limit/2 + 1, true, 413},
		{"/v1/runs/r/events/1/forms/image/png", "GET", "bytes=-500", limit, true, 206},
	} {
		name := fmt.Sprintf("%s %s %s of %d", tt.method, tt.path[len("/v1/runs/r/"):][:5], tt.span, tt.size)
		s := httptest.NewServer(New(Options{Backend: &holder{blob: bytes.Repeat([]byte("b"), tt.size), seeking: tt.seeking}, Limits: Limits{Blob: limit, Form: limit / 2}}))
		r, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if tt.span != "" {
			r.Header.Set("Range", tt.span)
		}
		resp, err := s.Client().Do(r)
		if tt.status == 0 && err != nil { // it was cut before it began
			s.Close()
			continue
		}
		if err != nil {
			t.Fatal(name, err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		s.Close()
		switch {
		case tt.status == 0:
			if err == nil {
				t.Errorf("%s: a part was taken for the whole, %s", name, resp.Status)
			}
		case err != nil || resp.StatusCode != tt.status:
			t.Errorf("%s: %s, %v", name, resp.Status, err)
		case tt.status == 413:
			var p Problem
			if err := json.Unmarshal(body, &p); err != nil || p.Code != "too_large" || p.Hint == "" || resp.Header.Get("Content-Range") != "" || resp.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %s %v, %v", name, body, resp.Header, err)
			}
		}
	}
}
