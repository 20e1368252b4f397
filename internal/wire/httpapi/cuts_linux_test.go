package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"testing"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

var cutsOf = flag.Int("cuts", 50, "how often TestExactlyOnceUnderCuts cuts the connection of each reader")

// TestExactlyOnceUnderCuts reads a log over each kind of stream while its connection is
// cut at random bytes. Every reader gets every event once.
func TestExactlyOnceUnderCuts(t *testing.T) {
	h := openHost(t)
	rpc := execserver.New(execserver.Options{Backend: h, Keep: true, RunsOnly: true})
	t.Cleanup(rpc.Close)
	b := serve(t, httpapi.Options{Backend: h, RPC: rpc, Limits: httpapi.Limits{RequestRate: 1e6, Failures: 1e6, FailuresTotal: 1e6, StreamsOf: 1e6, StreamsOfRun: 1e6, Streams: 1e6}})
	r := backendtest.Start(t, h, backendtest.Shell(`i=0; while [ $i -lt 60 ]; do echo "line $i, of standard output"; echo "$i" >&2; i=$((i+1)); done`))
	var want []spool.Event
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	for name, read := range map[string]func(*cutReader){
		"sse": (*cutReader).sse, "ndjson": (*cutReader).ndjson, "poll": (*cutReader).poll, "rpc": (*cutReader).rpc, "attach": (*cutReader).attach,
	} {
		t.Run(name, func(t *testing.T) {
			target, err := url.Parse(b.url)
			if err != nil {
				t.Fatal(err)
			}
			proxy, err := netcut.NewProxy(target.Host)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := proxy.Close(); err != nil {
					t.Error(err)
				}
			}()
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			c := &cutReader{
				T: t, proxy: proxy, run: r.ID(), want: want, random: rand.New(rand.NewPCG(1, uint64(len(name)))),
				rest: &rest{url: "http://" + proxy.Addr(), client: &http.Client{Transport: transport}},
			}
			for round := 0; c.cuts < *cutsOf; round++ {
				c.got, c.bytes, c.after = c.got[:0], c.bytes[:0], 0
				read(c)
				c.compare()
			}
		})
	}
}

// cutReader reads the log of a run over connections that are cut.
type cutReader struct {
	*testing.T
	rest   *rest
	proxy  *netcut.Proxy
	run    spool.RunID
	random *rand.Rand
	want   []spool.Event

	pending <-chan struct{} // the cut that waits for bytes
	cuts    int
	after   spool.Seq
	got     []spool.Event
	bytes   []byte // of an attached reader, instead of got
}

// schedule has the connection cut after some more bytes.
func (c *cutReader) schedule() {
	select {
	case <-c.pending:
		c.cuts++
	default:
	}
	c.pending = c.proxy.CutAfter(netcut.ToClient, 1+c.random.Int64N(1<<(4+c.random.IntN(10))))
}

// take takes an event, which must be the next one.
func (c *cutReader) take(e spool.Event) {
	if e.Seq != c.after+1 {
		c.Fatalf("event %d after %d", e.Seq, c.after)
	}
	c.got, c.after = append(c.got, e), e.Seq
}

func (c *cutReader) whole() bool { return int(c.after) == len(c.want) }

// compare compares what was read with the log.
func (c *cutReader) compare() {
	if c.bytes != nil && len(c.got) == 0 {
		var all []byte
		for i := range c.want {
			all = append(all, c.want[i].Bytes...)
		}
		if !bytes.Equal(c.bytes, all) {
			c.Fatalf("%d bytes, want %d", len(c.bytes), len(all))
		}
		return
	}
	for i := range c.want {
		if got, want := c.got[i].AppendJSON(nil), c.want[i].AppendJSON(nil); !bytes.Equal(got, want) {
			c.Fatalf("event %d is %s, want %s", i+1, got, want)
		}
	}
}

// request sends a request. It returns nil if it was cut.
func (c *cutReader) request(query string, header ...string) *http.Response {
	c.schedule()
	r, err := http.NewRequestWithContext(c.Context(), "GET", c.rest.url+eventsOf(c.run)+query, nil)
	if err != nil {
		c.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := c.rest.client.Do(r)
	if err != nil {
		return nil
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusNoContent {
		c.Fatal(resp.Status)
	}
	return resp
}

func (c *cutReader) sse() {
	for !c.whole() {
		resp := c.request("", "Accept", "text/event-stream", "Last-Event-ID", fmt.Sprint(uint64(c.after)))
		if resp == nil {
			continue
		}
		for frames := newFrames(resp.Body); ; {
			f, err := frames.next()
			if err != nil {
				break
			}
			if f.id == "" {
				continue
			}
			var e spool.Event
			if err := json.Unmarshal([]byte(f.data), &e); err != nil {
				c.Fatalf("%+v: %v", f, err)
			}
			c.take(e)
		}
		resp.Body.Close()
	}
}

func (c *cutReader) ndjson() {
	for !c.whole() {
		resp := c.request(fmt.Sprintf("?after=%d", c.after), "Accept", "application/x-ndjson", "Accept-Encoding", "identity")
		if resp == nil {
			continue
		}
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadBytes('\n')
			if err != nil { // what has no end was cut
				break
			}
			var e spool.Event
			if err := json.Unmarshal(line, &e); err != nil {
				c.Fatalf("%q: %v", line, err)
			}
			c.take(e)
		}
		resp.Body.Close()
	}
}

func (c *cutReader) poll() {
	for !c.whole() {
		resp := c.request(fmt.Sprintf("?after=%d&wait_ms=50000&max_bytes=600", c.after))
		if resp == nil {
			continue
		}
		var page httpapi.EventPage
		err := json.NewDecoder(resp.Body).Decode(&page)
		resp.Body.Close()
		if err != nil {
			continue
		}
		for _, e := range page.Events {
			c.take(e)
		}
		if page.Next != c.after {
			c.Fatalf("the next cursor is %d after %d", page.Next, c.after)
		}
	}
}

// rpc reads with the client of /v1/rpc, which comes back by itself.
func (c *cutReader) rpc() {
	c.proxy.CutAfter(netcut.ToClient, 1<<62) // who connects for the first time is told at once
	dialled, err := client.Dial(c.Context(), c.rest.url, client.Options{})
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = dialled.Close() }() // its connection may be cut
	c.schedule()
	for e, err := range dialled.Follow(c.Context(), c.run, 0) {
		if err != nil {
			c.Fatal(err)
		}
		c.take(e)
		select {
		case <-c.pending:
			c.schedule()
		default:
		}
	}
}

// attach passes over what it has after its cursor when it comes back.
func (c *cutReader) attach() {
	for done := false; !done; {
		c.schedule()
		conn, _, err := websocket.Dial(c.Context(), fmt.Sprintf("ws://%s/v1/runs/%s/attach?after=%d", c.proxy.Addr(), c.run, c.after), nil)
		if err != nil {
			continue
		}
		conn.SetReadLimit(-1)
		skip := len(c.bytes) // bytes after the cursor
		for i := range c.after {
			skip -= len(c.want[i].Bytes)
		}
		for {
			kind, b, err := conn.Read(c.Context())
			if err != nil {
				done = done || websocket.CloseStatus(err) == websocket.StatusNormalClosure
				break
			}
			if kind == websocket.MessageBinary {
				n := min(skip, len(b))
				skip -= n
				c.bytes = append(c.bytes, b[n:]...)
				continue
			}
			var f httpapi.AttachFrame
			if err := json.Unmarshal(b, &f); err != nil {
				c.Fatalf("%q: %v", b, err)
			}
			if f.Seq != 0 && f.Seq <= c.after {
				c.Fatalf("cursor %d after %d", f.Seq, c.after)
			}
			c.after = max(c.after, f.Seq)
			done = done || f.End != nil && f.End.Reason == "closed"
		}
		_ = conn.CloseNow()
	}
}
