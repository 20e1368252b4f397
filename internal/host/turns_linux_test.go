package host_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/python"
)

func TestTurns(t *testing.T) {
	backendtest.RunTurns(t, func(t *testing.T) backendtest.Kernels {
		h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
			python.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := h.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		return backendtest.Kernels{Backend: h, Reopen: func(*testing.T) spool.Backend { return h }}
	})
}
