package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// scripted is a backend that answers reads after a cursor with what it was told.
type scripted struct {
	spool.Backend
	info  spool.Info
	pages map[spool.Seq]func() (spool.Page, error)
}

func (b *scripted) Read(ctx context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	if page := b.pages[q.After]; page != nil {
		return page()
	}
	<-ctx.Done()
	return spool.Page{}, context.Cause(ctx)
}

// page is a page of events.
func (b *scripted) page(failure string, events ...spool.Event) func() (spool.Page, error) {
	return func() (spool.Page, error) {
		page := spool.Page{Events: events, Info: b.info, Failure: failure}
		for _, e := range events {
			page.Next = max(page.Next, e.Seq)
		}
		return page, nil
	}
}

// streamed asks for a stream, which must end by itself, and returns its frames.
func streamed(t *testing.T, b spool.Backend, query, last string) (status int, frames []string) {
	t.Helper()
	s := New(Options{Backend: b})
	defer s.Close(0)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/runs/r/events"+query, nil)
	r.Header.Set("Accept", formSSE)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	s.ServeHTTP(w, r)
	for frame := range strings.SplitSeq(strings.TrimSpace(w.Body.String()), "\n\n") {
		if !strings.HasPrefix(frame, "retry: ") && !strings.HasPrefix(frame, "event: info\n") {
			frames = append(frames, frame)
		}
	}
	return w.Code, frames
}

// TestStreamOfAGap checks that what is no longer there is announced once, with the number of
// the last event that is gone: who comes back with it does not hear of it again.
func TestStreamOfAGap(t *testing.T) {
	b := &scripted{info: spool.Info{ID: "r", Engine: "process", Last: 6, State: spool.StateClosed}}
	gap := spool.Event{Run: "r", Seq: 4, Kind: spool.KindTruncated, Data: json.RawMessage(`{"from":1,"to":4}`)}
	output := spool.Event{Run: "r", Seq: 5, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("x")}
	closed := spool.Event{Run: "r", Seq: 6, Kind: spool.KindClosed}
	b.pages = map[spool.Seq]func() (spool.Page, error){0: b.page("", gap, output, closed), 4: b.page("", output, closed)}
	ids := func(frames []string) (ids string) {
		for _, f := range frames {
			if id, ok := strings.CutPrefix(strings.SplitN(f, "\n", 2)[0], "id: "); ok {
				ids += id + " "
			}
		}
		return ids
	}
	_, frames := streamed(t, b, "", "")
	if ids(frames) != "4 5 6 " || !strings.Contains(frames[0], `"truncated"`) || frames[3] != "event: end\ndata: {\"reason\":\"closed\",\"last\":6}" {
		t.Errorf("the stream has %q", frames)
	}
	if _, frames := streamed(t, b, "", "4"); ids(frames) != "5 6 " {
		t.Errorf("after the gap it has %q", frames)
	}
	s := New(Options{Backend: b})
	defer s.Close(0)
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/runs/r/events?after=4", nil)
	r.Header.Set("Accept", formSSE)
	s.ServeHTTP(w, r)
	if w.Header().Get("Spool-First") != "5" || w.Header().Get("Spool-Last") != "6" {
		t.Errorf("the headers are %v", w.Header())
	}
}

// TestStreamThatIsLost checks that a stream whose run cannot be read on says so, with the
// cursor to come back with, and that what has no number has no id.
func TestStreamThatIsLost(t *testing.T) {
	output := spool.Event{Run: "r", Seq: 1, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("x")}
	const end = "event: end\ndata: {\"reason\":\"lost\",\"last\":1}"
	for name, tt := range map[string]struct {
		then func(b *scripted) func() (spool.Page, error)
		want string // the frame before the end
	}{
		"a failure": {func(b *scripted) func() (spool.Page, error) { return b.page("the owner is gone") }, "event: failure\ndata: {\"failure\":\"the owner is gone\"}"},
		"an error": {func(*scripted) func() (spool.Page, error) {
			return func() (spool.Page, error) { return spool.Page{}, fmt.Errorf("read: %w", spool.ErrLost) }
		}, "id: 1"},
		"an event without a number": {func(b *scripted) func() (spool.Page, error) {
			return b.page("gone", spool.Event{Run: "r", Time: time.Unix(0, 0).UTC(), Kind: "failed", Data: json.RawMessage(`{}`)})
		}, "event: failure\ndata: {"},
	} {
		b := &scripted{info: spool.Info{ID: "r", Engine: "process", Last: 1, State: spool.StateRunning}}
		b.pages = map[spool.Seq]func() (spool.Page, error){0: b.page("", output), 1: tt.then(b)}
		_, frames := streamed(t, b, "", "")
		if n := len(frames); n < 2 || frames[n-1] != end || !strings.HasPrefix(frames[n-2], tt.want) {
			t.Errorf("%s: %q", name, frames)
		}
		for _, f := range frames[1:] {
			if strings.Contains(f, "id:") && !strings.HasPrefix(f, "data") {
				t.Errorf("%s: %q has an id", name, f)
			}
		}
	}
}

// TestStreamOfATurnByFilter checks that a stream of one turn has its events with their own
// numbers.
func TestStreamOfATurnByFilter(t *testing.T) {
	b := &scripted{info: spool.Info{ID: "r", Engine: "kernel", Last: 6, State: spool.StateClosed}}
	events := []spool.Event{
		{Run: "r", Seq: 1, Kind: "input"}, {Run: "r", Seq: 2, Turn: 1, Kind: "output"}, {Run: "r", Seq: 3, Kind: "input"},
		{Run: "r", Seq: 4, Turn: 3, Kind: "output"}, {Run: "r", Seq: 5, Turn: 3, Kind: "done"}, {Run: "r", Seq: 6, Kind: spool.KindClosed},
	}
	b.pages = map[spool.Seq]func() (spool.Page, error){0: b.page("", events...)}
	_, frames := streamed(t, b, "?turn=3", "")
	var ids []string
	for _, f := range frames {
		if id, ok := strings.CutPrefix(strings.SplitN(f, "\n", 2)[0], "id: "); ok {
			ids = append(ids, id)
		}
	}
	if got := strings.Join(ids, " "); got != "3 4 5" {
		t.Errorf("the events are %s", got)
	}
}
