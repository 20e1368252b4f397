package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/python"
)

// TestStreamOfASlowClient has a client take so little at a time that a page takes
// longer than it may: it learns that, and goes on with its cursor.
func TestStreamOfASlowClient(t *testing.T) {
	h := openHost(t)
	api := httpapi.New(httpapi.Options{Backend: h, Limits: httpapi.Limits{Stalled: 50 * time.Millisecond, SlowGrace: time.Minute}})
	s := httptest.NewUnstartedServer(api)
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
	}
	s.Start()
	defer func() {
		api.Close(0)
		s.Close()
	}()
	id := finishedRun(t, h, "yes 0123456789 | head -c 600000")
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil { // so that one page is several sips, and takes as many rests
			err = c.(*net.TCPConn).SetReadBuffer(32 << 10)
		}
		return c, err
	}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+eventsOf(id), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	taken := newFrames(sips{resp.Body})
	last := ""
	end := taken.until(t, func(f frame) bool {
		if f.id != "" {
			last = f.id
		}
		return isEnd(f)
	})
	if want := fmt.Sprintf(`{"reason":"slow","last":%s}`, last); end.data != want || last == "" {
		t.Errorf("the end is %s, want %s", end.data, want)
	}
	if _, err := taken.next(); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}

// sips is a client that takes a little and rests.
type sips struct{ from io.Reader }

func (s sips) Read(p []byte) (int, error) {
	n, err := io.ReadFull(s.from, p[:min(len(p), 64<<10)])
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	time.Sleep(60 * time.Millisecond) // longer than the server waits
	return n, err
}

// TestStreamsOfTickets checks that an event source that is one too many is not told to
// give up.
func TestStreamsOfTickets(t *testing.T) {
	h := openHost(t)
	d := openDoor(t, h, func(o *httpapi.Options) { o.Limits.StreamsOfRun = 1 })
	r := cat(t, h)
	page, _ := d.signIn(t, `{"code":"`+d.codes.Make()+`"}`)
	var ticket struct {
		URL string `json:"url"`
	}
	if status, code := d.ask(t, "POST", "/v1/tickets", `{"path":"`+eventsOf(r.ID())+`","stream":true}`, page, &ticket); status >= 300 {
		t.Fatal(status, code)
	}
	if status, code := d.ask(t, "POST", "/v1/tickets", `{"path":"/v1/runs/`+string(r.ID())+`/attach"}`, page, nil); status != 400 || code != "invalid" {
		t.Errorf("a ticket for a WebSocket: %d %s", status, code)
	}
	source := func() *frames {
		r, err := http.NewRequestWithContext(t.Context(), "GET", d.url+ticket.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "text/event-stream")
		r.AddCookie(&http.Cookie{Name: access.CookieName(r), Value: page.cookie})
		resp, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
			t.Fatalf("%s %v", resp.Status, resp.Header)
		}
		return newFrames(resp.Body)
	}
	source().until(t, func(f frame) bool { return f.event == "info" })
	all := source().all(t)
	if len(all) != 2 || all[0].retry == "" || all[1].data != `{"reason":"limit","last":0}` {
		t.Errorf("one too many gets %+v", all)
	}
}

// TestStreamOfATurn follows turns from their beginning, and one that is over.
func TestStreamOfATurn(t *testing.T) {
	b := serve(t, httpapi.Options{Backend: openKernels(t)})
	info, err := b.Start(t.Context(), spool.Spec{Engine: python.EngineKernel, Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	run := "/v1/runs/" + string(info.ID)
	r, err := http.NewRequestWithContext(t.Context(), "POST", b.url+run+"/turns", strings.NewReader(`{"cell":{"code":"print('hi')"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	resp, err := b.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated || resp.Header.Get("Spool-First") != "1" {
		t.Errorf("%s %v", resp.Status, resp.Header)
	}
	var kinds []string
	var turn, last spool.Seq
	text := ""
	for _, f := range newFrames(resp.Body).all(t) {
		if f.id == "" {
			if f.event == "end" && f.data != fmt.Sprintf(`{"reason":"done","last":%d}`, last) {
				t.Errorf("the end is %+v", f)
			}
			continue
		}
		var e spool.Event
		if err := json.Unmarshal([]byte(f.data), &e); err != nil || fmt.Sprint(e.Seq) != f.id {
			t.Errorf("%+v: %v", f, err)
		}
		if turn == 0 {
			turn = e.Seq
		}
		last = e.Seq
		text += string(e.Bytes)
		kinds = append(kinds, string(e.Kind))
	}
	if got := strings.Join(kinds, " "); !strings.HasPrefix(got, "input output") || !strings.HasSuffix(got, " done") || text != "hi\n" {
		t.Errorf("the turn has %s with %q", got, text)
	}
	again := b.follow(t, fmt.Sprintf("%s/turns/%d", run, turn), "Last-Event-ID", fmt.Sprint(last-1)).all(t)
	if len(again) != 4 || again[2].id != fmt.Sprint(last) || !isEnd(again[3]) {
		t.Errorf("the end of the turn is %+v", again)
	}
	if resp := b.get(t, fmt.Sprintf("%s/turns/%d", run, turn), "Accept", "text/event-stream", "Last-Event-ID", fmt.Sprint(last)); resp.StatusCode != http.StatusNoContent {
		t.Errorf("after its end: %s", resp.Status)
	}
	if err := b.Control(t.Context(), info.ID, spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Attach(b, info.ID).Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}
