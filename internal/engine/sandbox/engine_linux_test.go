package sandbox_test

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/engine/sandbox"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/python"
)

// TestEngine runs the suite of all engines.
func TestEngine(t *testing.T) {
	if _, err := servertest.Build(); err != nil {
		t.Fatal(err)
	}
	e, err := sandbox.New(sandbox.Options{Backends: map[string]func() (guest.Backend, error){
		python.BackendEmbedded: func() (guest.Backend, error) { return wasipy.New(wasipy.Config{Worker: worker}), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	config, err := json.Marshal(python.SandboxConfig{Backend: python.BackendEmbedded, Offer: []string{"fs.*"}})
	if err != nil {
		t.Fatal(err)
	}
	enginetest.Run(t, enginetest.Subject{
		Engine: python.EngineSandbox,
		Open:   func(*testing.T) engine.Engine { return e },
		Spec:   func(*testing.T) spool.Spec { return spool.Spec{Config: config} },
		Turns: enginetest.Turns{
			Kind:  spool.InputCell,
			Quick: func() any { return spool.Cell{Code: "6 * 7"} },
			Slow: func(timeoutMs int64) any {
				return spool.Cell{Code: "print('begun', flush=True)\nwhile True: pass", TimeoutMs: timeoutMs}
			},
			Ask:    func() any { return spool.Cell{Code: "import spool\nspool.fs.read('/a')"} },
			Answer: map[string]string{"content_base64": "aGk="},
		},
		Without: map[string]string{enginetest.GroupArgv: "a sandbox runs Python in WebAssembly, not a process"},
	})
}
