package cli

import (
	"os"
	"os/exec"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// sparePipes are ready for the next processes of a keeper.
const sparePipes = 8

// engines are what a keeper can run. Each is made by its first use.
func engines() map[string]host.NewEngine {
	return map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) {
			return process.New(process.Options{Owner: owner, Spares: sparePipes})
		},
		spool.EngineKernel: func(owner string) (engine.Engine, error) {
			return kernel.New(kernel.Options{Owner: owner})
		},
		spool.EngineAgent: func(owner string) (engine.Engine, error) {
			return agents.New(agents.Options{Owner: owner})
		},
		spool.EngineSandbox: func(string) (engine.Engine, error) {
			return sandbox.New(sandbox.Options{Backends: sandboxBackends()})
		},
	}
}

// sandboxRole is the first argument of a process in which sandboxed code of
// the embedded back end executes.
const sandboxRole = "sandbox-role"

// sandboxBackends are the interpreters of sandboxes.
func sandboxBackends() map[string]func() (guest.Backend, error) {
	return map[string]func() (guest.Backend, error){
		python.BackendEmbedded: func() (guest.Backend, error) {
			return wasipy.New(wasipy.Config{Worker: func(args ...string) *exec.Cmd {
				cmd := exec.Command(self, append([]string{sandboxRole}, args...)...)
				cmd.Args[0] = "spool"
				return cmd
			}}), nil
		},
		python.BackendPyodide: func() (guest.Backend, error) {
			return pyodide.New(pyodide.Options{Dist: os.Getenv("SPOOL_PYODIDE")}), nil
		},
	}
}
