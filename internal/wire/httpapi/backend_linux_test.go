package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role { // the first process of a sandbox
		os.Exit(isolate.Work(os.Args[2:]))
	}
	leaktest.Main(m)
}

// openHost opens a host with a process engine.
func openHost(t *testing.T) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// serve serves a backend over HTTP and returns a client.
func serve(t *testing.T, o httpapi.Options) *rest {
	t.Helper()
	b, _ := serveAPI(t, o)
	return b
}

func serveAPI(t *testing.T, o httpapi.Options) (*rest, *httpapi.Server) {
	t.Helper()
	api := httpapi.New(o)
	s := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close(0)
		s.CloseClientConnections()
		s.Close()
	})
	b := &rest{url: s.URL, client: &http.Client{Transport: &described{t: t, inner: &http.Transport{}}}}
	t.Cleanup(func() { _ = b.Close() })
	return b, api
}

// TestBackend has the HTTP API pass the suite of backends: every promise of the log
// holds for a client with nothing but requests and server-sent events.
func TestBackend(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) spool.Backend {
		return serve(t, httpapi.Options{Backend: openHost(t)})
	})
}
