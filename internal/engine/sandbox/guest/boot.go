package guest

import (
	_ "embed" // the sources

	"github.com/spool-run/spool/python"
)

// Boot is the source of the Python module _spool_boot, which every back end
// has in its interpreters and executes scripts with:
//
//	_spool_boot.prepare()         once, before a snapshot is taken or a
//	                              process is forked
//	_spool_boot.renew(config)     in every copy of that, before its first
//	                              script: entropy, clocks, environment,
//	                              working directory; config is JSON, a
//	                              [BootConfig]
//	_spool_boot.run(script)       executes a [Script] in JSON and returns a
//	                              [BootResult] in JSON; never raises
//
// The module needs from its back end a module _spool with one function,
// call(kind, payload), that passes two strings to [Host.Ask] and returns its
// reply as a string. Nothing but files and standard streams leaves the
// interpreter otherwise.
//
//go:embed python/_spool_boot.py
var Boot string

// Module is the source of the Python module spool, the guest's way to ask its
// host program: spool.fs, spool.http, spool.dns and spool.subprocess. It is
// imported by Boot and needs to be importable.
//
//go:embed python/spool.py
var Module string

// BootConfig is what a copy of an interpreter becomes.
type BootConfig struct {
	Env map[string]string `json:"env"`
	Cwd string            `json:"cwd"`
	// Seed is fresh entropy, in hex.
	Seed string `json:"seed"`
	// Fresh says that the interpreter ends with its first script.
	Fresh bool `json:"fresh"`
}

// BootResult is how _spool_boot.run says that a script ended.
type BootResult struct {
	ExitCode  int               `json:"exit_code"`
	Value     *string           `json:"value,omitempty"`
	Exception *python.Exception `json:"exception,omitempty"`
	// OutOfMemory says that the script ended by a MemoryError.
	OutOfMemory bool `json:"out_of_memory,omitempty"`
}
