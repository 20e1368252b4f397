package keeper_test

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/python"
)

func init() {
	engines[python.EngineKernel] = func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) }
}

// Kernels outlive the backend that started them, and another backend finds them.
func TestTurns(t *testing.T) {
	backendtest.RunTurns(t, func(t *testing.T) backendtest.Kernels {
		dir := stateDir(t)
		return backendtest.Kernels{
			Backend: open(t, dir, "one"),
			Reopen:  func(t *testing.T) spool.Backend { return open(t, dir, "one") },
		}
	})
}
