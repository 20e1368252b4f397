package kernel

import (
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/python"
)

// TestEngine runs the suite of all engines.
func TestEngine(t *testing.T) { enginetest.Run(t, suite(open(t))) }

func suite(e engine.Engine) enginetest.Subject {
	return enginetest.Subject{
		Engine: python.EngineKernel,
		Open:   func(*testing.T) engine.Engine { return e },
		Spec: func(t *testing.T) spool.Spec {
			return spool.Spec{Config: encode(python.KernelConfig{Interpreter: testPython(t), Input: python.InputAsk, StartTimeoutMs: startTimeoutMs})}
		},
		Turns: enginetest.Turns{
			Kind:  spool.InputCell,
			Quick: func() any { return spool.Cell{Code: "6 * 7"} },
			Slow: func(timeoutMs int64) any {
				return spool.Cell{Code: "import time\nprint('begun', flush=True)\ntime.sleep(3600)", TimeoutMs: timeoutMs}
			},
			Ask:    func() any { return spool.Cell{Code: "input('who? ')"} },
			Answer: "me",
		},
		Without: map[string]string{enginetest.GroupArgv: "a kernel has cells in place of an argv"},
	}
}
