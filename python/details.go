package python

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// Details are the details of a kernel or a sandbox, in [spool.Info.Details].
type Details struct {
	// Interpreter is the path of the Python of a kernel, and the back end of
	// a sandbox.
	Interpreter string `json:"interpreter"`
	// Version is that of Python, where it is known.
	Version string `json:"version,omitempty"`
	// Turn is the turn that runs; zero means that the run is idle.
	Turn spool.Seq `json:"turn,omitempty"`
	// Queued is how many turns wait.
	Queued int `json:"queued,omitempty"`
	// Asks is how many asks have no answer.
	Asks int `json:"asks,omitempty"`
	// Config is the [KernelConfig] or [SandboxConfig] of the run, with the
	// defaults filled in and without the content of files.
	Config json.RawMessage `json:"config,omitempty"`
}
