package client_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/servertest"
)

// A handle of a real server's kernels is as one of this process, also when
// the connection breaks.
func TestTurns(t *testing.T) {
	backendtest.RunTurns(t, func(t *testing.T) backendtest.Kernels {
		proxy, url := proxied(t, servertest.Start(t, t.TempDir()).URL)
		c := dial(t, url, client.Options{})
		return backendtest.Kernels{Backend: c, Reopen: func(t *testing.T) spool.Backend {
			if proxy.Cut() == 0 {
				t.Error("there was no connection to cut")
			}
			return c
		}}
	})
}
