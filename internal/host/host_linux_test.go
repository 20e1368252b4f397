package host_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role { // the first process of a sandbox
		os.Exit(isolate.Work(os.Args[2:]))
	}
	if role := os.Getenv(childRole); role != "" {
		if err := runChild(role); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

func engines() map[string]host.NewEngine {
	return map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}
}

// fileAfter is short: runs are filed while tests read and list them.
const fileAfter = 20 * time.Millisecond

func open(t *testing.T, dir string) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: dir, Engines: engines(), FileAfter: fileAfter})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return h
}

func TestBackend(t *testing.T) {
	t.Run("durable", func(t *testing.T) {
		backendtest.Run(t, func(t *testing.T) spool.Backend { return open(t, t.TempDir()) })
	})
}
