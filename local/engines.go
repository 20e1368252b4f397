package local

import (
	"os"
	"os/exec"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/engine/audit"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/pyodide"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/python"
)

// Pipes and control groups that are ready for the next processes of a host.
const (
	sparePipes  = 8
	spareGroups = 32
)

// engines are all that there are. Each is made when first used.
func engines() map[string]host.NewEngine {
	return map[string]host.NewEngine{
		access.AuditEngine: func(string) (engine.Engine, error) { return audit.Engine{}, nil },
		spool.EngineProcess: func(owner string) (engine.Engine, error) {
			return process.New(process.Options{Owner: owner, Spares: sparePipes, SpareGroups: spareGroups})
		},
		python.EngineKernel: func(owner string) (engine.Engine, error) {
			return kernel.New(kernel.Options{Owner: owner})
		},
		agent.Engine: func(owner string) (engine.Engine, error) {
			return agents.New(agents.Options{Owner: owner})
		},
		python.EngineSandbox: func(string) (engine.Engine, error) {
			return sandbox.New(sandbox.Options{Backends: sandboxBackends()})
		},
	}
}

// Engines returns the engines for which this machine has what they need, and agent/NAME
// for each coding agent in PATH.
func Engines() []string {
	found := []string{spool.EngineProcess, python.EngineSandbox}
	hasPython := os.Getenv("VIRTUAL_ENV") != "" || os.Getenv("CONDA_PREFIX") != ""
	for _, program := range []string{"python3", "python"} {
		_, err := exec.LookPath(program)
		hasPython = hasPython || err == nil
	}
	if hasPython {
		found = append(found, python.EngineKernel)
	}
	if names := agents.Found(); len(names) > 0 {
		found = append(found, agent.Engine)
		for _, name := range names {
			found = append(found, agent.Engine+"/"+name)
		}
	}
	slices.Sort(found)
	return found
}

// sandboxBackends are the interpreters of sandboxes.
func sandboxBackends() map[string]func() (guest.Backend, error) {
	return map[string]func() (guest.Backend, error){
		python.BackendEmbedded: func() (guest.Backend, error) {
			return wasipy.New(wasipy.Config{Worker: func(args ...string) *exec.Cmd { return child(sandboxRole, args...) }}), nil
		},
		python.BackendPyodide: func() (guest.Backend, error) {
			return pyodide.New(pyodide.Options{Dist: os.Getenv("SPOOL_PYODIDE"), Node: os.Getenv("SPOOL_NODE")}), nil
		},
	}
}
