package spool

import (
	"encoding/json"
	"time"
)

// EngineProcess is the engine that runs operating system processes, and the
// one a spec means when it names none.
const EngineProcess = "process"

// Spec says what to run. A process needs Argv; the Spec methods of
// python.KernelConfig, python.SandboxConfig and agent.Config fill in what the
// other engines need. The zero value of all other fields is usable.
type Spec struct {
	// ID makes the start idempotent: a second start with the same ID and an
	// equal spec returns the run that exists, and one with another spec
	// gives [ErrExists]. It has the characters a-z and 0-9. If it is empty,
	// the backend chooses one.
	ID RunID `json:"id,omitempty"`
	// Name is how people find the run again; see [Find]. It is unique among
	// live runs; finished runs may have it, too.
	Name   string            `json:"name,omitempty"`
	Engine string            `json:"engine,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`

	// Argv is executed as it is: no shell ever sees it.
	Argv []string `json:"argv,omitempty"`
	// Arg0 is what the process sees as its argv[0], when not Argv[0].
	Arg0 string `json:"arg0,omitempty"`
	// Cwd is the working directory. Empty means that of the program that
	// calls Start with package local, and that of the server with package
	// client.
	Cwd string `json:"cwd,omitempty"`
	// Env are variables that are added to those of EnvPolicy. Without a
	// policy a process gets Env alone; kernels and agents also get the
	// variables they cannot work without, such as HOME and PATH. Values are
	// never written to the log or the store.
	Env map[string]string `json:"env,omitempty"`
	// EnvPolicy takes variables over from the environment of the program
	// that calls Start with package local, and from that of the server with
	// package client.
	EnvPolicy *EnvPolicy `json:"env_policy,omitempty"`
	// TTY asks for a terminal of this size instead of pipes.
	TTY *Size `json:"tty,omitempty"`
	// LineBuffered makes stdout a terminal instead of a pipe, so that programs
	// which write to a pipe in blocks write every line at once. The bytes
	// stay as they are, stderr and stdin too. It does nothing with a TTY.
	LineBuffered bool `json:"line_buffered,omitempty"`
	// Stdin keeps a writable standard input; without it, and without a
	// TTY, the process reads end of file at once.
	Stdin bool `json:"stdin,omitempty"`

	Limits Limits `json:"limits,omitzero"`
	// Notify is a command that is started when the run has ended, on its
	// machine, as a process run of its own with the label spool.notify. It has
	// the directory and the environment of this spec, and the variables
	// SPOOL_RUN, the id of the run that ended, SPOOL_STATUS, its outcome as
	// text, and SPOOL_EXIT_CODE. It is not started if the process that owns the
	// run is killed or closed.
	Notify []string `json:"notify,omitempty"`
	// Isolation is what the run must be kept from; nil means nothing.
	Isolation *Isolation `json:"isolation,omitempty"`
	// Workspace has the changes of the run in its working directory told
	// apart; nil means not.
	Workspace *Workspace `json:"workspace,omitempty"`
	// Config is what the named engine needs beyond this.
	Config json.RawMessage `json:"config,omitempty"`
}

// Size is the size of a terminal in character cells.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// EnvPolicy derives an environment in this order: inherit, drop the default
// excludes (names that look like secrets), drop Exclude, apply Set, keep only
// IncludeOnly when it is not empty. Patterns are case-insensitive globs.
//
// An API key is therefore dropped even with "all", unless the policy sets
// IgnoreDefaultExcludes or [Spec.Env] names the key.
type EnvPolicy struct {
	// Inherit says which variables to start from: "all" of them, the "core"
	// ones (PATH, HOME and their like) or "none". Empty means all.
	Inherit string `json:"inherit,omitempty"`
	// IgnoreDefaultExcludes keeps variables whose names match *KEY*,
	// *SECRET* or *TOKEN*. Otherwise they are dropped.
	IgnoreDefaultExcludes bool              `json:"ignore_default_excludes,omitempty"`
	Exclude               []string          `json:"exclude,omitempty"`
	Set                   map[string]string `json:"set,omitempty"`
	IncludeOnly           []string          `json:"include_only,omitempty"`
}

// Limits bound one run. Zero means the backend's default, which is named below
// as far as backends set none of their own; a negative limit is an error. The
// JSON form has durations in whole milliseconds.
type Limits struct {
	Wall  time.Duration `json:"wall_ms,omitempty"`  // stop after this long; default none
	Idle  time.Duration `json:"idle_ms,omitempty"`  // stop after this long without output; default none
	Grace time.Duration `json:"grace_ms,omitempty"` // between SIGTERM and SIGKILL; default 5 s
	// OutputBytes bounds the output that is logged; default 2 GiB.
	OutputBytes int64 `json:"output_bytes,omitempty"`
	// OutputPolicy says what happens to output beyond that. "truncate", the
	// default, keeps the head and the tail and logs how many bytes were
	// dropped between them; "block" stops reading, so that the writer
	// blocks; "stop" stops the run.
	OutputPolicy string `json:"output_policy,omitempty"`
	Pids         int    `json:"pids,omitempty"` // processes and threads alive at once; default 4096
	// MemoryBytes bounds the memory and swap of all processes of the run
	// together; default none. At the limit the kernel kills a process, and the
	// outcome of the run says so. CPUs bounds their processor time: 1.5 is the
	// time of one and a half processors; default none. A start on a machine that
	// cannot enforce one of them fails. A sandbox has its own limits.
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	CPUs        float64 `json:"cpus,omitempty"`
	// OpenFiles bounds the files that each process of the run has open; default
	// that of the backend's own process. A sandbox has its own.
	OpenFiles int `json:"open_files,omitempty"`
}
