package python_test

import (
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// A kernel of a virtual environment, with a limit of memory and one of time
// for each cell.
func ExampleKernelConfig_Spec() {
	spec := python.KernelConfig{
		Interpreter:   ".venv/bin/python",
		Preload:       []string{"numpy"},
		MemoryBytes:   2 << 30,
		CellTimeoutMs: 60_000,
	}.Spec()
	spec.Name = "analysis"
	fmt.Println(spec.Engine, string(spec.Config))
	// Output: kernel {"interpreter":".venv/bin/python","preload":["numpy"],"cell_timeout_ms":60000,"memory_bytes":2147483648}
}

// A sandbox that reads one directory of this machine and has no network.
func ExampleSandboxConfig_Spec() {
	spec := python.SandboxConfig{
		Mounts: []python.Mount{{Host: "/srv/data", Guest: "/data"}},
		Limits: python.SandboxLimits{WallMs: 10_000, MemoryBytes: 128 << 20},
	}.Spec()
	fmt.Println(spec.Engine, string(spec.Config))
	// Output: sandbox {"mounts":[{"host":"/srv/data","guest":"/data"}],"limits":{"wall_ms":10000,"memory_bytes":134217728}}
}

// The data of a result event has a value in every form that it has.
func ExampleDisplay() {
	event := spool.Event{Kind: python.KindResult, Data: []byte(`{"text/plain":"42","text/html":"<b>42</b>","execution_count":1}`)}
	var display python.Display
	if err := json.Unmarshal(event.Data, &display); err != nil {
		panic(err)
	}
	fmt.Println(display.Count, string(display.Bundle["text/plain"]))
	// Output: 1 "42"
}
