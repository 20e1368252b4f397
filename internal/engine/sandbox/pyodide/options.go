package pyodide

import (
	_ "embed" // the runner and what it executes
	"time"
)

//go:embed runner.mjs
var runnerSource []byte

//go:embed prelude.py
var preludeSource string

//go:embed exercise.py
var exerciseSource string

// Options configure a back end. The zero value is ready.
type Options struct {
	// Self is our own binary, which must know [Role]; empty means the one
	// of this process.
	Self string
	// Node is the Node to use; empty means the one of PATH.
	Node string
	// Dist is the distribution of setups that name none.
	Dist string
	// CacheDir is where prepared things are kept for setups that name no
	// directory; empty means the user's cache directory.
	CacheDir string
	// KeepIdle is how long processes are kept that no context uses.
	KeepIdle time.Duration
	// LoadTime is how long a distribution may take to load.
	LoadTime time.Duration
	// Spares is how many processes of each setup wait ready for a script;
	// negative means none, where they can be forked when they are needed.
	Spares int
	// NoFork has every interpreter a process of its own.
	NoFork bool
	// NoNamespaces does without, as where the kernel has none for us.
	NoNamespaces bool
}

// Defaults of [Options].
const (
	DefaultKeepIdle = 5 * time.Minute
	DefaultLoadTime = 2 * time.Minute
	DefaultSpares   = 1
)
