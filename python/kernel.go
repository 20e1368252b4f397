package python

import (
	"encoding/json"

	"github.com/spool-run/spool"
)

// KernelConfig configures a kernel: a run of [EngineKernel], which is a
// Python interpreter that keeps its state from one cell to the next. The zero
// value is usable.
//
// Of the spec around it a kernel takes Env, EnvPolicy, Cwd and Limits, whose
// Idle is the time without a cell and whose OutputBytes are those of one cell.
type KernelConfig struct {
	// Interpreter is the Python to run. Empty means the first that works
	// of VIRTUAL_ENV, CONDA_PREFIX, .venv and venv in the working
	// directory, and python3 and python in PATH.
	Interpreter string     `json:"interpreter,omitempty"`
	Zygote      ZygoteMode `json:"zygote,omitempty"`
	// Preload are modules that the zygote imports, such as numpy.
	Preload []string `json:"preload,omitempty"`
	// Fork begins with a copy of the state of another kernel, which must be
	// between two cells.
	Fork spool.RunID `json:"fork,omitempty"`
	// Tools are the names of host functions that cells may call, as
	// tool.NAME(key=value); see [spool.Run.ServeTools].
	Tools []string    `json:"tools,omitempty"`
	Input InputPolicy `json:"input,omitempty"`
	// EnvAllow are patterns of names of variables that the interpreter
	// inherits in addition to the usual ones. A name that looks like a secret
	// is inherited only if a pattern here matches it.
	EnvAllow []string `json:"env_allow,omitempty"`
	// Init is code that every interpreter of the run executes before its
	// first cell, also the one that follows a crash or a restart. If it
	// raises, the interpreter does not start.
	Init string `json:"init,omitempty"`
	// Once ends the run after its first cell, which is a whole program: its
	// threads end and its exit handlers run before the cell is done.
	Once bool `json:"once,omitempty"`
	// Trace is a file of the machine that runs the kernel, to which each
	// message between Spool and the interpreter is appended as a line of JSON.
	// Secret answers are left out. Output is not part of the protocol.
	Trace string `json:"trace,omitempty"`

	// StartTimeoutMs bounds how long an interpreter may take to start; the
	// default is a minute.
	StartTimeoutMs int64 `json:"start_timeout_ms,omitempty"`
	// CellTimeoutMs ends a cell that names no timeout. Zero means none.
	CellTimeoutMs int64 `json:"cell_timeout_ms,omitempty"`
	// AgainMs, TerminateMs and KillMs are how long after an interrupt that
	// does not help the cell is interrupted again, gets SIGTERM, and gets
	// SIGKILL; the defaults are 2, 4 and 5 seconds.
	AgainMs     int64 `json:"again_ms,omitempty"`
	TerminateMs int64 `json:"terminate_ms,omitempty"`
	KillMs      int64 `json:"kill_ms,omitempty"`

	// MemoryBytes bounds the memory of the interpreter: beyond it Python
	// raises MemoryError. Where there are control groups for memory, the
	// whole tree is bounded as well, and ended when it takes more.
	MemoryBytes int64 `json:"memory_bytes,omitempty"`
	// CPUMs bounds the processor time of the interpreter in all. The
	// operating system counts it in whole seconds, so it is rounded up.
	CPUMs int64 `json:"cpu_ms,omitempty"`
}

// Spec returns a spec that starts a kernel with this configuration. The
// caller may fill in the rest of it.
func (c KernelConfig) Spec() spool.Spec { return spec(EngineKernel, c) }

// InputPolicy says what input() does in a kernel.
type InputPolicy string

// The input policies.
const (
	InputFail InputPolicy = "fail" // raise EOFError at once; the default
	InputAsk  InputPolicy = "ask"  // write an ask of kind [spool.AskInput], and wait
)

// ZygoteMode says how interpreters are started. A zygote is a process that
// has imported what cells need, from which interpreters are forked.
type ZygoteMode string

// The zygote modes.
const (
	ZygoteAuto ZygoteMode = "auto" // from a zygote if one is ready, and prepare one otherwise; the default
	ZygoteOff  ZygoteMode = "off"  // without a zygote
	ZygoteWait ZygoteMode = "wait" // wait until a zygote is ready
)

// spec makes a spec of a configuration that always encodes.
func spec(engine string, config any) spool.Spec {
	data, err := json.Marshal(config)
	if err != nil {
		panic("python: encode configuration: " + err.Error()) // strings, numbers and lists of them
	}
	return spool.Spec{Engine: engine, Config: data}
}
