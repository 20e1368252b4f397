package sandbox_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/sandboxtest"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/pyodidetest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/python"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if os.Args[1] == pyodide.Role {
			os.Exit(pyodide.RunRole(os.Args[2:]))
		}
		if os.Args[1] == isolate.Role {
			os.Exit(isolate.Work(os.Args[2:]))
		}
	}
	os.Exit(leaktest.Code(servertest.Main(m)))
}

// worker starts workers as a keeper does: the real binary in its role.
func worker(args ...string) *exec.Cmd {
	bin, err := servertest.Build()
	if err != nil {
		return &exec.Cmd{Err: err}
	}
	return exec.Command(bin, append([]string{"sandbox-role"}, args...)...)
}

func TestEmbedded(t *testing.T) {
	if _, err := servertest.Build(); err != nil { // not when the first script waits for it
		t.Fatal(err)
	}
	sandboxtest.Run(t, sandboxtest.Subject{
		Config: python.SandboxConfig{Backend: python.BackendEmbedded},
		New:    func() (guest.Backend, error) { return wasipy.New(wasipy.Config{Worker: worker}), nil },
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
		Config: python.SandboxConfig{Backend: python.BackendPyodide, Dist: dist},
		New:    func() (guest.Backend, error) { return kept{b}, nil },
	})
}
