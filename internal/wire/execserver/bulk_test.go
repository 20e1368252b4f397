package execserver_test

import (
	"cmp"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/wire/execserver"
)

// newServer serves a host with a process engine on loopback, in this process.
func newServer(tb testing.TB, o execserver.Options) (url string, h *host.Host) {
	tb.Helper()
	h = newHost(tb)
	o.Backend = h
	return serveBackend(tb, o), h
}

// newHost opens a host with a process engine.
func newHost(tb testing.TB) *host.Host {
	tb.Helper()
	h, err := host.Open(host.Options{Dir: tb.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := h.Close(); err != nil {
			tb.Error(err)
		}
	})
	return h
}

// serveBackend serves a backend until the test ends. On a busy machine a client
// may need more time than the defaults allow.
func serveBackend(tb testing.TB, o execserver.Options) (url string) {
	tb.Helper()
	o.Detached, o.Closed = cmp.Or(o.Detached, time.Hour), cmp.Or(o.Closed, time.Hour)
	o.Limits.Handshake = cmp.Or(o.Limits.Handshake, time.Hour)
	o.Limits.Stalled = cmp.Or(o.Limits.Stalled, time.Hour)
	s := execserver.New(o)
	s.SetWaits(time.Hour, time.Hour, time.Hour)
	return serve(tb, s)
}

// serve serves until the test ends.
func serve(tb testing.TB, s *execserver.Server) (url string) {
	tb.Helper()
	web := httptest.NewServer(s)
	tb.Cleanup(func() {
		s.Close()
		web.Close()
	})
	return strings.Replace(web.URL, "http://", "ws://", 1)
}

// BenchmarkFollow transfers the output of one process through the server to a
// client in this process, or directly to a reader.
func BenchmarkFollow(b *testing.B) {
	const size = 256 << 20
	for _, remote := range []bool{false, true} {
		b.Run(fmt.Sprintf("remote=%v", remote), func(b *testing.B) {
			url, h := newServer(b, execserver.Options{})
			var backend spool.Backend = h
			if remote {
				c, err := client.Dial(b.Context(), url, client.Options{})
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				backend = c
			}
			b.SetBytes(size)
			events := 0
			for b.Loop() {
				r, err := spool.Start(b.Context(), backend, spool.Spec{Argv: []string{"/bin/dd", "if=/dev/zero", "bs=64K", fmt.Sprintf("count=%d", size>>16), "status=none"}})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for e, err := range r.Events(b.Context(), 0) {
					if err != nil {
						b.Fatal(err)
					}
					n += len(e.Bytes)
					events++
				}
				if n != size {
					b.Fatalf("%d bytes arrived", n)
				}
			}
			b.ReportMetric(float64(size)*float64(b.N)/float64(events), "bytes/event")
		})
	}
}
