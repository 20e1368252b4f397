package httpapi_test

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// get sends a request with these headers.
func (b *rest) get(t *testing.T, path string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// follow opens a stream.
func (b *rest) follow(t *testing.T, path string, header ...string) *frames {
	t.Helper()
	resp := b.get(t, path, append(header, "Accept", "text/event-stream")...)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %d %s", path, resp.StatusCode, body)
	}
	return newFrames(resp.Body)
}

// until reads frames until one fits, and returns it.
func (s *frames) until(t *testing.T, fits func(frame) bool) frame {
	t.Helper()
	for {
		f, err := s.next()
		if err != nil {
			t.Fatalf("the stream ended: %v", err)
		}
		if fits(f) {
			return f
		}
	}
}

// all reads the frames up to the end of a stream.
func (s *frames) all(t *testing.T) (all []frame) {
	t.Helper()
	for {
		f, err := s.next()
		if err != nil {
			if err != io.EOF {
				t.Fatal(err)
			}
			return all
		}
		all = append(all, f)
	}
}

func isEnd(f frame) bool { return f.event == "end" }

// finishedRun runs a script and waits for its end.
func finishedRun(t *testing.T, b spool.Backend, script string) spool.RunID {
	t.Helper()
	r := backendtest.Start(t, b, backendtest.Shell(script))
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r.ID()
}

// cat starts a run that writes what it reads. The end of the test ends it.
func cat(t *testing.T, b spool.Backend) *spool.Run {
	t.Helper()
	spec := backendtest.Shell("exec cat")
	spec.Stdin = true
	return backendtest.Start(t, b, spec)
}

func say(t *testing.T, r *spool.Run, text string) {
	t.Helper()
	if _, err := r.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte(text)}); err != nil {
		t.Fatal(err)
	}
}

// awaitLast waits until the log has so many events.
func awaitLast(t *testing.T, r *spool.Run, last spool.Seq) {
	t.Helper()
	polltest.Until(t, fmt.Sprintf("%d events", last), func() bool {
		info, err := r.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return info.Last >= last
	})
}

func eventsOf(id spool.RunID) string { return "/v1/runs/" + string(id) + "/events" }

func TestStreamIDsAreNumbersOfEvents(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "echo a; echo b >&2; exit 1")
	last := 0
	for _, f := range b.follow(t, eventsOf(id)).all(t) {
		var e spool.Event
		isEvent := f.event == "" && f.data != ""
		if isEvent {
			last++
			if err := json.Unmarshal([]byte(f.data), &e); err != nil || e.Seq != spool.Seq(last) || e.Run != id {
				t.Errorf("frame %+v: %v", f, err)
			}
		}
		if want := strconv.Itoa(last); isEvent && f.id != want || !isEvent && f.id != "" {
			t.Errorf("frame %+v", f)
		}
	}
	if last != 4 {
		t.Errorf("%d events, want 4", last)
	}
}

func TestStreamEventsHaveTheDefaultType(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "echo a")
	for _, named := range []bool{false, true} {
		var types []string
		for _, f := range b.follow(t, eventsOf(id)+"?named="+strconv.FormatBool(named)).all(t) {
			if f.id != "" {
				types = append(types, f.event)
			}
		}
		want := ",,"
		if named {
			want = "output,exited,closed"
		}
		if got := strings.Join(types, ","); got != want {
			t.Errorf("named %v: the types are %q, want %q", named, got, want)
		}
	}
}

func TestStreamCursors(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	say(t, r, "one\n")
	awaitLast(t, r, 1)
	say(t, r, "two\n")
	awaitLast(t, r, 2)
	for _, tt := range []struct {
		query string
		first string // the id of the first event
	}{
		{"", "1"}, {"?after=0", "1"}, {"?after=1", "2"}, {"?tail_bytes=4", "2"}, {"?tail_bytes=5", "1"}, {"?tail_bytes=100", "1"},
	} {
		f := b.follow(t, eventsOf(r.ID())+tt.query).until(t, func(f frame) bool { return f.id != "" })
		if f.id != tt.first {
			t.Errorf("%q begins with %s, want %s", tt.query, f.id, tt.first)
		}
	}
	if f := b.follow(t, eventsOf(r.ID())+"?after=0", "Last-Event-ID", "1").until(t, func(f frame) bool { return f.id != "" }); f.id != "2" {
		t.Errorf("Last-Event-ID did not win: %+v", f)
	}
	now := []*frames{b.follow(t, eventsOf(r.ID())+"?after=-1"), b.follow(t, eventsOf(r.ID())+"?tail_bytes=0")}
	for _, s := range now {
		s.until(t, func(f frame) bool { return f.event == "info" })
	}
	say(t, r, "three\n")
	for _, s := range now {
		if f := s.until(t, func(f frame) bool { return f.id != "" }); f.id != "3" {
			t.Errorf("only what comes begins with %+v", f)
		}
	}
	for _, bad := range []string{"?after=x", "?after=-2", "?after=9223372036854775808"} {
		resp := b.get(t, eventsOf(r.ID())+bad, "Accept", "text/event-stream")
		var p httpapi.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Code != "bad_cursor" || resp.StatusCode != 400 {
			t.Errorf("%s: %+v, %v", bad, p, err)
		}
	}
}

func TestStreamEndsForGood(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "true")
	frames := b.follow(t, eventsOf(id)).all(t)
	if last := frames[len(frames)-1]; !isEnd(last) || last.data != `{"reason":"closed","last":2}` {
		t.Errorf("the last frame is %+v", last)
	}
	for _, after := range []string{"2", "3", "1000"} {
		if resp := b.get(t, eventsOf(id), "Accept", "text/event-stream", "Last-Event-ID", after); resp.StatusCode != http.StatusNoContent {
			t.Errorf("after %s: %d, want 204", after, resp.StatusCode)
		}
	}
}

func TestStreamBeyondTheEndOfALiveRunWaits(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	s := b.follow(t, eventsOf(r.ID())+"?after=1")
	s.until(t, func(f frame) bool { return f.event == "info" })
	say(t, r, "one\n")
	awaitLast(t, r, 1)
	say(t, r, "two\n")
	if f := s.until(t, func(f frame) bool { return f.id != "" }); f.id != "2" || !strings.Contains(f.data, `"two\n"`) {
		t.Errorf("the first event is %+v", f)
	}
}

func TestStreamEndsWithTheServer(t *testing.T) {
	h := openHost(t)
	b, api := serveAPI(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	s := b.follow(t, eventsOf(r.ID()))
	s.until(t, func(f frame) bool { return f.event == "info" })
	api.Close(time.Minute)
	if f := s.until(t, isEnd); f.data != `{"reason":"shutdown","last":0}` {
		t.Errorf("the end is %+v", f)
	}
	resp := b.get(t, eventsOf(r.ID()))
	var p httpapi.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Code != "closing" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a request after the end: %+v, %v", p, err)
	}
	if info, err := r.Info(t.Context()); err != nil || info.State != spool.StateRunning {
		t.Errorf("the run is %v, %v", info.State, err)
	}
}

func TestStreamEndsWithItsToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	_, secret, err := access.CreateToken(path, access.Token{Name: "alice", Subject: "alice", Scopes: access.DefaultScopes()})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	b := serve(t, httpapi.Options{Backend: openHost(t), Auth: tokens, Limits: httpapi.Limits{CheckEvery: time.Millisecond}})
	b.token = secret
	r := cat(t, b)
	s := b.follow(t, eventsOf(r.ID()))
	s.until(t, func(f frame) bool { return f.event == "info" })
	if _, err := access.RevokeToken(path, "alice"); err != nil {
		t.Fatal(err)
	}
	if f := s.until(t, isEnd); f.data != `{"reason":"revoked","last":0}` {
		t.Errorf("the end is %+v", f)
	}
}

func TestStreamIsNeverSilentForLong(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{Heartbeat: 10 * time.Millisecond}})
	r := cat(t, h)
	s := b.follow(t, eventsOf(r.ID()))
	f := s.until(t, func(f frame) bool { return f.retry != "" })
	if ms, err := strconv.Atoi(f.retry); err != nil || ms < 750 || ms > 1250 {
		t.Errorf("retry %q", f.retry)
	}
	for range 3 {
		s.until(t, func(f frame) bool { return f == frame{comment: ":"} })
	}
	lines := bufio.NewScanner(b.get(t, eventsOf(r.ID())+"?heartbeat_ms=100", "Accept", "application/x-ndjson").Body)
	if !lines.Scan() || lines.Text() != "" {
		t.Errorf("the first line of a silent stream is %q, %v", lines.Text(), lines.Err())
	}
}

// TestStreamOfAClientThatTakesNothing checks that a client which does not read holds
// its stream only for a while.
func TestStreamOfAClientThatTakesNothing(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{Stalled: time.Second, SlowGrace: time.Millisecond, StreamsOf: 1}})
	id := finishedRun(t, h, "head -c 16000000 /dev/zero")
	resp := b.get(t, eventsOf(id), "Accept", "text/event-stream") // and never read
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	polltest.Until(t, "the stream is over", func() bool {
		other := b.get(t, eventsOf(id)+"?after=1000000", "Accept", "text/event-stream")
		return other.StatusCode == http.StatusNoContent
	})
}

func TestStreamsAreBounded(t *testing.T) {
	for name, limits := range map[string]httpapi.Limits{"server": {Streams: 2}, "owner": {StreamsOf: 2}, "run": {StreamsOfRun: 2}} {
		t.Run(name, func(t *testing.T) {
			h := openHost(t)
			b := serve(t, httpapi.Options{Backend: h, Limits: limits})
			r := cat(t, h)
			for range 2 {
				b.follow(t, eventsOf(r.ID())).until(t, func(f frame) bool { return f.event == "info" })
			}
			resp := b.get(t, eventsOf(r.ID()), "Accept", "text/event-stream")
			var p httpapi.Problem
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Code != "too_many_streams" || !strings.Contains(p.Detail, name+" has 2 streams") || resp.Header.Get("Retry-After") == "" {
				t.Errorf("a third stream: %+v, %v", p, err)
			}
			if resp := b.get(t, eventsOf(r.ID())); resp.StatusCode != http.StatusOK {
				t.Errorf("a page: %s", resp.Status)
			}
		})
	}
}

func TestStreamIsNeverCompressed(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "head -c 10000 /dev/zero | tr '\\0' x")
	for _, tt := range []struct{ accept, coding string }{{"text/event-stream", ""}, {"application/x-ndjson", "gzip"}, {"application/json", "gzip"}} {
		resp := b.get(t, eventsOf(id), "Accept", tt.accept, "Accept-Encoding", "gzip")
		if got := resp.Header.Get("Content-Encoding"); got != tt.coding {
			t.Errorf("%s has the coding %q, want %q", tt.accept, got, tt.coding)
		}
		body := io.Reader(resp.Body)
		if tt.coding != "" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Fatal(err)
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil || strings.Count(string(text), "x") < 10000 {
			t.Errorf("%s: %d bytes, %v", tt.accept, len(text), err)
		}
	}
	if resp := b.get(t, "/v1/runs/"+string(id), "Accept-Encoding", "gzip"); resp.Header.Get("Content-Encoding") != "" {
		t.Error("a short answer is compressed")
	}
}

func TestStreamFilters(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{CursorEvery: time.Nanosecond}})
	r := cat(t, h)
	s := b.follow(t, eventsOf(r.ID())+"?kind=exited&kind=closed")
	s.until(t, func(f frame) bool { return f.event == "info" })
	say(t, r, "one\n")
	if f := s.until(t, func(f frame) bool { return f.event != "info" }); f != (frame{event: "cursor", data: `{"after":1}`}) {
		t.Errorf("after an event that is passed over: %+v", f)
	}
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"2", "3"} {
		if f := s.until(t, func(f frame) bool { return f.id != "" }); f.id != want {
			t.Errorf("event %+v, want %s", f, want)
		}
	}
}

func TestStreamOfLines(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "echo a")
	body, err := io.ReadAll(b.get(t, eventsOf(id), "Accept", "application/x-ndjson").Body)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(body), "\n"), "\n")
	for i, line := range lines {
		var e spool.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.Seq != spool.Seq(i+1) {
			t.Errorf("line %q: %v", line, err)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestStreamOfBase64(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	id := finishedRun(t, h, "echo a")
	for path, want := range map[string]string{"": `"text":"a\n"`, "?base64=1": `"base64":"YQo="`} {
		if f := b.follow(t, eventsOf(id)+path).until(t, func(f frame) bool { return f.id != "" }); !strings.Contains(f.data, want) {
			t.Errorf("%q: %+v", path, f)
		}
	}
}

// TestLongPoll checks that a page comes with its first event.
func TestLongPoll(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{LongPoll: 50 * time.Millisecond}})
	r := cat(t, h)
	var page httpapi.EventPage
	if err := b.call(t.Context(), "GET", eventsOf(r.ID())+"?wait_ms=1000000", nil, nil, &page); err != nil || len(page.Events) != 0 {
		t.Errorf("a wait beyond the limit: %+v, %v", page, err)
	}
	say(t, r, "one\n")
	awaitLast(t, r, 1)
	if err := b.call(t.Context(), "GET", eventsOf(r.ID())+"?wait_ms=1000000", nil, nil, &page); err != nil || len(page.Events) != 1 || page.Next != 1 {
		t.Errorf("a page: %+v, %v", page, err)
	}
}

// TestBodiesAreBounded checks the limits of what a request may carry.
func TestBodiesAreBounded(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h, Limits: httpapi.Limits{Body: 100, Stdin: 10}})
	r := cat(t, h)
	for _, tt := range []struct {
		path, contentType string
		size              int
		code              string
	}{
		{"/v1/runs/" + string(r.ID()) + "/input", "application/octet-stream", 10, ""},
		{"/v1/runs/" + string(r.ID()) + "/input", "application/octet-stream", 11, "too_large"},
		{"/v1/runs", "application/json", 101, "too_large"},
		{"/v1/runs", "application/json", 100, "start_invalid"},
	} {
		body := strings.Repeat("x", tt.size)
		if tt.contentType == "application/json" {
			body = "{}" + strings.Repeat(" ", tt.size-2)
		}
		resp, err := b.client.Post(b.url+tt.path, tt.contentType, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var p httpapi.Problem
		err = json.NewDecoder(resp.Body).Decode(&p)
		resp.Body.Close()
		if err != nil || p.Code != tt.code {
			t.Errorf("%d bytes to %s: %s %s, want %s", tt.size, tt.path, resp.Status, p.Code, cmp.Or(tt.code, "success"))
		}
	}
}

// TestEndOfInputOnce checks that the end of the input, and bytes before it, may be sent
// again by their id, also after the run has ended.
func TestEndOfInputOnce(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	for _, body := range []string{"", "last\n"} {
		r := cat(t, h)
		for i := range 3 {
			resp, err := b.client.Post(b.url+"/v1/runs/"+string(r.ID())+"/input?id=x&eof=1", "application/octet-stream", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			var receipt spool.Receipt
			err = json.NewDecoder(resp.Body).Decode(&receipt)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusAccepted || receipt.Repeated != (i > 0) {
				t.Errorf("end of input %d after %q: %s %+v, %v", i, body, resp.Status, receipt, err)
			}
			if i == 1 {
				if _, err := r.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, err := io.ReadAll(b.get(t, "/v1/runs/"+string(r.ID())+"/output").Body); err != nil || string(got) != body {
			t.Errorf("it read %q, %v", got, err)
		}
	}
}

// TestOutputFollows checks that raw output goes on until the run is closed.
func TestOutputFollows(t *testing.T) {
	h := openHost(t)
	b := serve(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	say(t, r, "\x1b[1mone\x1b[0m\n")
	awaitLast(t, r, 1)
	lines := bufio.NewScanner(b.get(t, "/v1/runs/"+string(r.ID())+"/output?follow=1&ansi=strip").Body)
	for _, line := range []string{"one", "two"} {
		if !lines.Scan() || lines.Text() != line {
			t.Fatalf("line %q, %v", lines.Text(), lines.Err())
		}
		say(t, r, "two\n")
	}
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		if lines.Text() != "two" {
			t.Errorf("line %q", lines.Text())
		}
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
	// A client that was cut off goes on anywhere, also within an event.
	for query, want := range map[string]string{
		"skip_bytes=13": "wo\ntwo\n", "skip_bytes=16&follow=1": "two\n", "skip_bytes=20": "", "skip_bytes=99&follow=1": "",
		"skip_bytes=1&tail_bytes=6": "\ntwo\n", "skip_bytes=2&stream=stdout&after=1": "o\ntwo\n",
	} {
		text, err := io.ReadAll(b.get(t, "/v1/runs/"+string(r.ID())+"/output?"+query).Body)
		if err != nil || string(text) != want {
			t.Errorf("the output with %s is %q, %v; want %q", query, text, err, want)
		}
	}
}
