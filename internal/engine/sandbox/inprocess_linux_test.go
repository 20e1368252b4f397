//go:build !race

package sandbox_test

import (
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/sandboxtest"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/python"
)

// TestEmbeddedInProcess is for embedders, who may want no other process. With
// the race detector in this one it takes minutes to compile the interpreter.
func TestEmbeddedInProcess(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Subject{
		Config: python.SandboxConfig{Backend: python.BackendEmbedded, Isolation: python.IsolateNone},
		New:    func() (guest.Backend, error) { return wasipy.New(wasipy.Config{}), nil },
	})
}
