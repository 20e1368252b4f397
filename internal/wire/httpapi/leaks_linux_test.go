package httpapi_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

var connectsOf = flag.Int("connects", 500, "how many connections TestCutConnectionsLeaveNothing makes")

// heapSlack is by how much the heap may differ after connections that are gone: pools and
// caches have a bounded size.
const heapSlack = 8 << 20

// TestCutConnectionsLeaveNothing opens streams of every kind and cuts them at once, in the
// middle of what the server writes. Then the goroutines, the file descriptors and the memory
// of the process are what they were.
func TestCutConnectionsLeaveNothing(t *testing.T) {
	h := openHost(t)
	rpc := execserver.New(execserver.Options{Backend: h, Keep: true, RunsOnly: true})
	t.Cleanup(rpc.Close)
	b := serve(t, httpapi.Options{Backend: h, RPC: rpc, Limits: httpapi.Limits{RequestRate: 1e6, Failures: 1e6, FailuresTotal: 1e6, StreamsOf: 1e6, StreamsOfRun: 1e6, Streams: 1e6, Watchers: 1e6}})
	run := cat(t, h)
	server, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	at := "/v1/runs/" + string(run.ID())
	const socket = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	requests := []struct{ path, headers string }{
		{at + "/events", "Accept: text/event-stream\r\n"},
		{at + "/events", "Accept: application/x-ndjson\r\n"},
		{at + "/events?after=1000000&wait_ms=55000", ""},
		{at + "/output?follow=true", ""},
		{"/v1/watch", "Accept: text/event-stream\r\n"},
		{at + "/attach", socket},
		{"/v1/rpc", socket},
	}
	cut := func(n int) {
		request := requests[n%len(requests)]
		conn, err := net.Dial("tcp", server.Host)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // it is reset, not closed
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", request.path, server.Host, request.headers); err != nil {
			t.Error(err)
			return
		}
		if n%3 == 0 || request.headers == "" { // before the answer, which a poll does not have yet
			return
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("%s: %v, %v", request.path, answer, err)
			return
		}
		if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") && n%2 == 0 {
			if _, err := io.ReadFull(answer.Body, make([]byte, 8)); err != nil {
				t.Errorf("%s: %v", request.path, err)
			}
		}
	}
	many := func(n int) {
		var wg sync.WaitGroup
		const workers = 8
		for w := range workers {
			wg.Go(func() {
				for i := w; i < n && !t.Failed(); i += workers {
					cut(i)
				}
			})
		}
		wg.Wait()
	}
	state := func() (goroutines, files int) {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return runtime.NumGoroutine(), len(list)
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC() // what finalizers let go of
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	goroutines, _ := state()
	many(100) // opens the log for readers, and fills pools and caches
	polltest.Until(t, "the end of what the first connections began", func() bool {
		now, _ := state()
		return now <= goroutines
	})
	_, files := state()
	before := heap()
	many(*connectsOf)
	polltest.Until(t, "as many goroutines and files as before", func() bool {
		g, f := state()
		return g <= goroutines && f <= files
	})
	if after := heap(); after > before+heapSlack {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	} else {
		t.Logf("%d connections: the heap was %d bytes and is %d; %d goroutines, %d files", *connectsOf, before, after, goroutines, files)
	}
}
