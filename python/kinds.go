package python

import "github.com/spool-run/spool"

// The engines of Python, in [spool.Spec.Engine].
const (
	EngineKernel  = "kernel"  // a persistent interpreter
	EngineSandbox = "sandbox" // Python in WebAssembly
)

// The kinds of event that Python has beside those of package spool.
const (
	KindDisplay   spool.Kind = "display"   // Data is a [Display]
	KindResult    spool.Kind = "result"    // the value of a cell: a [Display]
	KindException spool.Kind = "exception" // Data is an [Exception]
)
