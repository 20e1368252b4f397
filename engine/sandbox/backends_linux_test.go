package sandbox_test

import (
	"os"
	"os/exec"
	"testing"

	"go.uber.org/goleak"

	"github.com/spool-run/spool/engine/sandbox"
	"github.com/spool-run/spool/engine/sandbox/guest"
	"github.com/spool-run/spool/engine/sandbox/pyodide"
	"github.com/spool-run/spool/engine/sandbox/sandboxtest"
	"github.com/spool-run/spool/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/pyodidetest"
)

// workerRole makes a process of this test a worker of the embedded back end.
const workerRole = "sandbox-worker-role"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case workerRole:
			os.Exit(wasipy.Work(os.Args[2:]))
		case pyodide.Role:
			os.Exit(pyodide.RunRole(os.Args[2:]))
		}
	}
	goleak.VerifyTestMain(m)
}

func worker(args ...string) *exec.Cmd {
	return exec.Command("/proc/self/exe", append([]string{workerRole}, args...)...)
}

func TestEmbedded(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Subject{
		Config: sandbox.Config{Backend: sandbox.BackendEmbedded},
		New:    func() (guest.Backend, error) { return wasipy.New(wasipy.Config{Worker: worker}), nil },
	})
}

// TestEmbeddedInProcess is for embedders, who may want no other process.
func TestEmbeddedInProcess(t *testing.T) {
	sandboxtest.Run(t, sandboxtest.Subject{
		Config: sandbox.Config{Backend: sandbox.BackendEmbedded, Isolation: guest.IsolateNone},
		New:    func() (guest.Backend, error) { return wasipy.New(wasipy.Config{}), nil },
	})
}

// kept is a back end that outlives the engines which close it: loading Pyodide
// takes a while.
type kept struct{ guest.Backend }

func (kept) Close() error { return nil }

func TestPyodide(t *testing.T) {
	dist := pyodidetest.Dist(t)
	b := pyodide.New(pyodide.Options{})
	defer b.Close()
	sandboxtest.Run(t, sandboxtest.Subject{
		Config: sandbox.Config{Backend: sandbox.BackendPyodide, Dist: dist},
		New:    func() (guest.Backend, error) { return kept{b}, nil },
	})
}
