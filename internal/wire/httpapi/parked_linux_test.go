package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// crowdLimits let one client have many streams.
func crowdLimits() httpapi.Limits {
	return httpapi.Limits{RequestRate: 1e6, Failures: 1e6, FailuresTotal: 1e6, StreamsOf: 1e6, StreamsOfRun: 1e6, Streams: 1e6}
}

// serveParked serves, and returns the number of streams that have left their requests.
// The buffers of connections have so many bytes.
func serveParked(t *testing.T, buffer int, o httpapi.Options) (*rest, *httpapi.Server, *atomic.Int64) {
	t.Helper()
	parked := new(atomic.Int64)
	o.Parked = func(n int) { parked.Add(int64(n)) }
	api := httpapi.New(o)
	s := httptest.NewUnstartedServer(api)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(buffer)
		}
	}
	s.Start()
	t.Cleanup(func() {
		api.Close(time.Minute)
		s.Close()
		if n := parked.Load(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &rest{url: s.URL, client: &http.Client{Transport: transport}}, api, parked
}

// untilParked waits until so many streams have left their requests.
func untilParked(t *testing.T, parked *atomic.Int64, n int64) {
	t.Helper()
	polltest.Until(t, fmt.Sprintf("%d streams parked", n), func() bool { return parked.Load() == n })
}

// dialStream opens a stream of a run with a connection of its own, for which no
// goroutine of this process reads.
func dialStream(t *testing.T, b *rest, id spool.RunID, header string) (net.Conn, *http.Response) {
	t.Helper()
	server, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", server.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n%s\r\n", eventsOf(id), server.Host, header); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1<<10), nil)
	if err != nil || resp.StatusCode != http.StatusOK || !resp.Close {
		t.Fatalf("the answer is %+v, %v", resp, err)
	}
	return conn, resp
}

// silent is a backend that does not tell when there are events to read.
type silent struct{ spool.Backend }

// TestParkedStreamsGetEachEventOnce has many readers, in all forms, follow a run that
// goes on. They leave and come back with their cursors all the time.
func TestParkedStreamsGetEachEventOnce(t *testing.T) {
	t.Run("told", func(t *testing.T) { testEachEventOnce(t, openHost(t)) })
	t.Run("reading", func(t *testing.T) { testEachEventOnce(t, silent{openHost(t)}) })
}

func testEachEventOnce(t *testing.T, h spool.Backend) {
	const readers, lines = 24, 120
	b, _, parked := serveParked(t, 4<<10, httpapi.Options{Backend: h, Limits: crowdLimits()})
	r := cat(t, h)
	var wg sync.WaitGroup
	var taken [readers]atomic.Int64
	for i := range readers {
		wg.Go(func() {
			reader := &leavingReader{rest: b, run: r.ID(), random: rand.New(rand.NewPCG(1, uint64(i))), taken: &taken[i]}
			if err := reader.read(t.Context(), i); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	most := int64(0)
	for n := range lines {
		say(t, r, strings.Repeat(fmt.Sprintf("line %d\n", n), 1+n%50*20))
		awaitLast(t, r, spool.Seq(n+1))
		most = max(most, parked.Load())
	}
	if err := r.Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if most < 2 {
		t.Errorf("no two of %d streams were parked at once", readers)
	}
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range taken {
		if want := int64(info.Last); i%4 != filteredReader && taken[i].Load() != want {
			t.Errorf("reader %d got %d events of %d", i, taken[i].Load(), want)
		}
	}
}

// filteredReader is the reader, of four, that wants some events only.
const filteredReader = 3

// leavingReader reads the events of a run over streams that it leaves.
type leavingReader struct {
	rest   *rest
	run    spool.RunID
	random *rand.Rand
	after  spool.Seq
	taken  *atomic.Int64
}

// read reads until the log ends.
func (l *leavingReader) read(ctx context.Context, kind int) error {
	query := []string{"?", "?named=1&base64=1&", "?heartbeat_ms=100&", "?kind=exited&kind=closed&"}[kind%4]
	accept := []string{"text/event-stream", "text/event-stream", "application/x-ndjson", "text/event-stream"}[kind%4]
	for {
		r, err := http.NewRequestWithContext(ctx, "GET", fmt.Sprintf("%s%s%safter=%d", l.rest.url, eventsOf(l.run), query, l.after), nil)
		if err != nil {
			return err
		}
		r.Header.Set("Accept", accept)
		r.Header.Set("Accept-Encoding", "identity")
		resp, err := l.rest.client.Do(r)
		if err != nil {
			return err
		}
		over, err := l.some(resp, kind)
		resp.Body.Close()
		if over || err != nil {
			return err
		}
	}
}

// some reads some events, and reports whether they were the last ones.
func (l *leavingReader) some(resp *http.Response, kind int) (over bool, err error) {
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode == http.StatusNoContent, nil
	}
	frames, lines := newFrames(resp.Body), bufio.NewReader(resp.Body)
	for range 1 + l.random.IntN(20) {
		var data []byte
		if accept := resp.Header.Get("Content-Type"); strings.HasPrefix(accept, "text/") {
			f, err := frames.next()
			switch {
			case err != nil:
				return false, fmt.Errorf("after %d: %w", l.after, err)
			case f.event == "end":
				if want := fmt.Sprintf(`{"reason":"closed","last":%d}`, l.after); f.data != want {
					return true, fmt.Errorf("the end is %s, want %s", f.data, want)
				}
				_, err := frames.next()
				if !errors.Is(err, io.EOF) {
					return true, fmt.Errorf("after the end: %w", err)
				}
				return true, nil
			case f.event == "cursor":
				var cursor struct{ After spool.Seq }
				if err := json.Unmarshal([]byte(f.data), &cursor); err != nil || cursor.After < l.after {
					return false, fmt.Errorf("cursor %s after %d: %w", f.data, l.after, err)
				}
				l.after = cursor.After
				continue
			case f.id == "":
				continue
			}
			data = []byte(f.data)
		} else {
			line, err := lines.ReadBytes('\n')
			if err == io.EOF && len(line) == 0 {
				return true, nil
			} else if err != nil {
				return false, fmt.Errorf("after %d: %w", l.after, err)
			}
			if len(line) == 1 {
				continue
			}
			data = line
		}
		var e spool.Event
		if err := json.Unmarshal(data, &e); err != nil {
			return false, err
		}
		if e.Seq != l.after+1 && (kind%4 != filteredReader || e.Seq <= l.after) {
			return false, fmt.Errorf("event %d after %d", e.Seq, l.after)
		}
		l.after = e.Seq
		l.taken.Add(1)
	}
	return false, nil
}

// TestParkedClientThatStops has one of two clients take nothing for a while. The other
// does not notice. The first gets all when it goes on, or learns that it was slow.
func TestParkedClientThatStops(t *testing.T) {
	for name, stalled := range map[string]time.Duration{"goes on": time.Minute, "slow": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			h := openHost(t)
			limits := crowdLimits()
			limits.Stalled, limits.SlowGrace = stalled, time.Minute
			b, _, parked := serveParked(t, 64<<10, httpapi.Options{Backend: h, Limits: limits})
			r := cat(t, h)
			conn, unread := dialStream(t, b, r.ID(), "")
			other := b.follow(t, eventsOf(r.ID()))
			untilParked(t, parked, 2)
			const lines = 16
			began := time.Now()
			for n := range lines {
				say(t, r, strings.Repeat("x", 60<<10)+"\n")
				want := fmt.Sprint(n + 1)
				other.until(t, func(f frame) bool { return f.id == want })
			}
			if name == "slow" {
				for time.Since(began) < 3*stalled {
					time.Sleep(stalled) // the client rests
				}
			}
			if err := r.Stdin(t.Context()).Close(); err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).SetReadBuffer(1 << 20) // it is in a hurry now
			after := 0
			end := newFrames(unread.Body).until(t, func(f frame) bool {
				if f.id != "" {
					if after++; f.id != fmt.Sprint(after) {
						t.Fatalf("event %s, want %d", f.id, after)
					}
				}
				return isEnd(f)
			})
			want := fmt.Sprintf(`{"reason":"closed","last":%d}`, after)
			if name == "slow" {
				want = fmt.Sprintf(`{"reason":"slow","last":%d}`, after)
			}
			if end.data != want {
				t.Errorf("the end is %s, want %s", end.data, want)
			}
			if _, err := io.Copy(io.Discard, unread.Body); err != nil {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}

// TestParkedClientThatTakesNothing checks that a client which stops for good holds its
// stream only for a while.
func TestParkedClientThatTakesNothing(t *testing.T) {
	h := openHost(t)
	limits := crowdLimits()
	limits.Stalled, limits.SlowGrace = time.Second, time.Millisecond
	b, _, parked := serveParked(t, 64<<10, httpapi.Options{Backend: h, Limits: limits})
	r := cat(t, h)
	dialStream(t, b, r.ID(), "")
	untilParked(t, parked, 1)
	polltest.Until(t, "the stream cut off", func() bool {
		say(t, r, strings.Repeat("x", 60<<10)+"\n")
		return parked.Load() == 0
	})
}

// TestParkedClientThatTalks checks that a client may say a little after its request,
// which nobody hears, and is cut off if it goes on.
func TestParkedClientThatTalks(t *testing.T) {
	h := openHost(t)
	b, _, parked := serveParked(t, 64<<10, httpapi.Options{Backend: h, Limits: crowdLimits()})
	r := cat(t, h)
	conn, resp := dialStream(t, b, r.ID(), "")
	untilParked(t, parked, 1)
	if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	say(t, r, "hi\n")
	newFrames(resp.Body).until(t, func(f frame) bool { return f.id == "1" })
	_, _ = conn.Write(make([]byte, 64<<10)) // the server may close it in the middle
	untilParked(t, parked, 0)
}

// panicking is a backend that panics when it is read, once it is armed.
type panicking struct {
	spool.Backend
	armed atomic.Bool
}

// toldPanicking is panicking, and tells when there are events to read.
type toldPanicking struct {
	*panicking
	access.Notifier
}

func (b *panicking) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	page, err := b.Backend.Read(ctx, id, q)
	if b.armed.Load() {
		panic("armed")
	}
	return page, err
}

// Send implements [spool.Backend].
func (b *panicking) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	if b.armed.Load() {
		panic("armed")
	}
	return b.Backend.Send(ctx, id, in)
}

// TestAttachToABackendThatPanics checks that the connection of a client ends whose input
// makes the backend panic, and that the program goes on.
func TestAttachToABackendThatPanics(t *testing.T) {
	h := &panicking{Backend: openHost(t)}
	b := serve(t, httpapi.Options{Backend: h})
	r := cat(t, h)
	a := b.attach(t, r.ID(), "")
	a.until(t, "its beginning", func() bool { return len(a.frames) > 0 })
	h.armed.Store(true)
	a.say(t, "one\n")
	a.ends(t, "lost", 4500)
	h.armed.Store(false)
	a = b.attach(t, r.ID(), "")
	a.say(t, "two\n")
	a.until(t, "the echo", func() bool { return string(a.bytes) == "two\n" })
}

// TestParkedStreamsOfABackendThatPanics checks that such streams are cut, and that the
// program goes on.
func TestParkedStreamsOfABackendThatPanics(t *testing.T) {
	t.Run("told", func(t *testing.T) {
		h := openHost(t)
		b := &panicking{Backend: h}
		testPanics(t, b, toldPanicking{b, h})
	})
	t.Run("reading", func(t *testing.T) {
		h := &panicking{Backend: openHost(t)}
		testPanics(t, h, h)
	})
}

func testPanics(t *testing.T, h *panicking, backend spool.Backend) {
	b, _, parked := serveParked(t, 64<<10, httpapi.Options{Backend: backend, Limits: crowdLimits()})
	r := cat(t, h.Backend)
	_, resp := dialStream(t, b, r.ID(), "")
	_, other := dialStream(t, b, r.ID(), "")
	untilParked(t, parked, 2)
	h.armed.Store(true)
	say(t, r, "hi\n")
	for _, body := range []io.Reader{resp.Body, other.Body} {
		if _, err := io.Copy(io.Discard, body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the stream ended with %v", err)
		}
	}
	untilParked(t, parked, 0)
	h.armed.Store(false)
	_, resp = dialStream(t, b, r.ID(), "")
	newFrames(resp.Body).until(t, func(f frame) bool { return f.id == "1" })
}

// TestParkedStreamsEnd ends streams that wait: with their token, and with the server.
func TestParkedStreamsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	secrets := make(map[string]string)
	for _, name := range []string{"alice", "bob"} {
		_, secret, err := access.CreateToken(path, access.Token{Name: name, Subject: "alice", Scopes: access.DefaultScopes()})
		if err != nil {
			t.Fatal(err)
		}
		secrets[name] = secret
	}
	tokens, err := access.OpenTokens(path)
	if err != nil {
		t.Fatal(err)
	}
	limits := crowdLimits()
	limits.CheckEvery = time.Millisecond
	b, api, parked := serveParked(t, 64<<10, httpapi.Options{Backend: openHost(t), Auth: tokens, Limits: limits})
	b.token = secrets["alice"]
	r := cat(t, b)
	streams := make(map[string][]*http.Response)
	for name, secret := range secrets {
		for range 10 {
			_, resp := dialStream(t, b, r.ID(), "Authorization: Bearer "+secret+"\r\n")
			streams[name] = append(streams[name], resp)
		}
	}
	untilParked(t, parked, 20)
	ended := func(name, reason string) {
		for _, resp := range streams[name] {
			if f := newFrames(resp.Body).until(t, isEnd); f.data != fmt.Sprintf(`{"reason":%q,"last":0}`, reason) {
				t.Errorf("the end of %s is %+v", name, f)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Errorf("after the end: %v", err)
			}
		}
	}
	if _, err := access.RevokeToken(path, "bob"); err != nil {
		t.Fatal(err)
	}
	ended("bob", "revoked")
	untilParked(t, parked, 10)
	api.Close(time.Minute)
	if n := parked.Load(); n != 0 {
		t.Errorf("the server has ended, and %d streams are parked", n)
	}
	ended("alice", "shutdown")
}

// TestParkedStreamsAreSmall checks that a stream that waits has one goroutine, and
// nothing when its client has left.
func TestParkedStreamsAreSmall(t *testing.T) {
	const readers = 200
	h := openHost(t)
	limits := crowdLimits()
	limits.StreamsOfRun = readers
	b, _, parked := serveParked(t, 64<<10, httpapi.Options{Backend: h, Limits: limits})
	r := cat(t, h)
	before := runtime.NumGoroutine()
	for range 2 { // there is room for the second lot when the first has left
		conns := make([]net.Conn, readers)
		for i := range conns {
			conns[i], _ = dialStream(t, b, r.ID(), "")
		}
		untilParked(t, parked, readers)
		// One for each, one for all, and a few of net/http that end.
		polltest.Until(t, "one goroutine for a stream", func() bool { return runtime.NumGoroutine() <= before+readers+2 })
		for _, conn := range conns {
			conn.Close()
		}
		untilParked(t, parked, 0)
		polltest.Until(t, "as many goroutines as before", func() bool { return runtime.NumGoroutine() <= before })
	}
}

// TestParkedStreamsOfManyRuns checks that the streams of runs that say nothing have one
// goroutine each, and hear what is said, and heartbeats, each of them.
func TestParkedStreamsOfManyRuns(t *testing.T) {
	const runs, readers = 16, 2
	h := openHost(t)
	limits := crowdLimits()
	limits.Heartbeat = 50 * time.Millisecond
	b, _, parked := serveParked(t, 64<<10, httpapi.Options{Backend: h, Limits: limits})
	all := make([]*spool.Run, runs)
	for i := range all {
		all[i] = cat(t, h)
		say(t, all[i], "hi\n") // and its process rests
		awaitLast(t, all[i], 1)
	}
	before := runtime.NumGoroutine()
	var streams [runs][]*frames
	for i, r := range all {
		for range readers {
			_, resp := dialStream(t, b, r.ID(), "")
			streams[i] = append(streams[i], newFrames(resp.Body))
		}
	}
	untilParked(t, parked, runs*readers)
	// One for each stream, and those that write heartbeats.
	polltest.Until(t, "no goroutine for a run", func() bool { return runtime.NumGoroutine() < before+runs*readers+runs/2 })
	for i, r := range all {
		say(t, r, "hi\n")
		for _, s := range streams[i] {
			s.until(t, func(f frame) bool { return f.id == "2" })
		}
	}
	for i := range all {
		for _, s := range streams[i] {
			for range 3 {
				s.until(t, func(f frame) bool { return f == frame{comment: ":"} })
			}
		}
	}
}
