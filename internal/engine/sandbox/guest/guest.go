// Package guest is the vocabulary between the sandbox engine and its back
// ends: what it takes to have a Python interpreter that cannot reach this
// machine, and to execute scripts in it.
//
// A [Backend] is a kind of interpreter. It prepares what its interpreters
// share, once, and opens contexts. A [Context] is where the scripts of one
// caller execute, one after the other. Everything that a script may reach
// comes from two places only: the file system of its context, and the [Host]
// of the script.
//
// The package holds no mechanism. A back end may execute in this process or in
// a worker of its own: every value here that crosses over is plain data, every
// callback takes and gives bytes, and a script ends when its context.Context
// does, whatever it is doing, so that killing the worker is always an answer.
//
// The Python side that all back ends share, so that they cannot differ in it,
// is in [Boot].
package guest

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// Backend is one kind of interpreter. Its methods may be called at any time,
// by anyone.
type Backend interface {
	// Name is the name a configuration asks for it by.
	Name() string
	// Prepare makes ready what the contexts of a setup share: compiled
	// code, snapshots, a process to fork from. It returns once that is
	// there and says what it took; what an earlier call, also one of an
	// earlier process, left behind is used if it is still valid. Calls of
	// one setup share the work. Its error is an [*UnavailableError] if this
	// machine lacks something.
	Prepare(ctx context.Context, s Setup) (Prewarm, error)
	// Wall returns what the operating system keeps contexts of a setup from. The
	// first call may test that, which takes a moment.
	Wall(ctx context.Context, s Setup) (Wall, error)
	// Open returns a new context. It prepares the setup if necessary.
	Open(ctx context.Context, o Options) (Context, error)
	// Doctor says what this machine can do, without changing it.
	Doctor(ctx context.Context) []Finding
	// Close ends all that the back end started, and waits for it.
	Close() error
}

// Context is where the scripts of one caller execute.
type Context interface {
	// Run executes one script and returns how it ended. It is called once
	// at a time. When ctx ends, the script is over within milliseconds,
	// whatever it is doing; the result then says EndedBy [Killed], and the
	// caller, who knows why ctx ended, says it better. No callback of h is
	// running or will be called after Run returned.
	//
	// A script that failed or was stopped is a result. An error says that
	// the back end failed; the context may still be used.
	Run(ctx context.Context, s Script, h Host) (Result, error)
	// Close lets go of the interpreter. It may be called while a script
	// runs, and then stops it.
	Close() error
}

// Interrupter is a [Context] that can raise KeyboardInterrupt in the script
// that runs. Without one there is nothing to interrupt, and no error.
type Interrupter interface {
	Interrupt() error
}

// Accountable is a [Context] that knows what its scripts used.
type Accountable interface {
	// Settle ends the interpreter where it is a process of its own, and returns
	// what all scripts used, nil if that is not known. It is called once, before
	// Close, when no script runs.
	Settle() *spool.ProcessUse
}

// Setup is what contexts can share. Two setups are one if they are equal but
// for Progress.
type Setup struct {
	// Dist is the directory of a Pyodide distribution on this machine.
	Dist string
	// Wheels is a directory of this machine with wheels that Dist lacks.
	Wheels string
	// Node is the Node to use, as a path or a name in PATH, and JSHeap the
	// most bytes of its own heap. Zero values let the back end choose.
	Node   string
	JSHeap int64
	// Packages are imported before the first script.
	Packages []string
	// CacheDir is where prepared things are kept; empty lets the back end
	// choose one in the user's cache directory.
	CacheDir  string
	Isolation python.Isolation
	// Progress is told how the preparation gets on, if it has to do
	// something. It may be nil.
	Progress func(Progress)
}

// Wall is what the operating system was seen to keep the processes of interpreters
// from, whatever a script makes them do. WebAssembly is another wall, inside.
type Wall struct {
	Mechanism  string            // of package isolate; empty if interpreters are in this process
	Guarantees []string          // of package isolate
	Why        map[string]string // of guarantees that do not hold, for a person
}

// Progress is one step of a preparation.
type Progress struct {
	Step     string  // what is done now, for a person: "compile the interpreter"
	Fraction float64 // of the whole, 0 … 1; negative if unknown
}

// Prewarm says what a preparation did.
type Prewarm struct {
	Executed    bool   // something was prepared, as opposed to found
	Reason      string // ReasonExecuted or ReasonCached
	Duration    time.Duration
	CacheDir    string
	Dist        string   // for Pyodide: the distribution
	Version     string   // of Python, and of Pyodide
	Protections []string // the protections between guests and this machine, as text
}

// The reasons of a [Prewarm].
const (
	ReasonExecuted = "executed"
	ReasonCached   = "cached"
)

// Options are those of one context.
type Options struct {
	Setup
	// FS is all that scripts see of files. The back end makes its own
	// library visible beside it, read-only. It is never nil.
	FS vfs.FS
	// Cwd is where scripts begin, a directory of FS.
	Cwd string
	// Env is the whole environment of the guest.
	Env map[string]string
	// Fresh gives each script an interpreter that no other script has seen.
	Fresh bool
	// Memory bounds what the interpreter may allocate, in bytes; zero
	// means [DefaultMemory].
	Memory int64
	// Fuel bounds the work of each script in units of the back end, which
	// are the same for the same script each time; zero means no bound. A
	// back end that cannot count refuses anything else.
	Fuel int64
	// OpenFiles bounds the files that are open at once; zero means
	// [DefaultOpenFiles].
	OpenFiles int
}

// Defaults of [Options].
const (
	DefaultMemory    = 256 << 20
	DefaultOpenFiles = 256
)

// Script is one thing to execute.
type Script struct {
	// Code is Python source.
	Code string `json:"code"`
	// File is the path of the source, for __file__, sys.argv[0] and
	// tracebacks; empty for code that is in no file.
	File string `json:"file,omitempty"`
	// Module is the name of a module to run instead of the code. If File is set,
	// it is the directory or the archive with the module.
	Module string `json:"module,omitempty"`
	// Name is sys.argv[0] of code that is in no file.
	Name string `json:"name,omitempty"`
	// Args are sys.argv[1:].
	Args []string `json:"args,omitempty"`
	// Cell makes the value of a last expression part of the result.
	Cell bool `json:"cell,omitempty"`
	// Last says that the script is a program: the interpreter ends with it, and
	// what the program registered with atexit is called.
	Last bool `json:"last,omitempty"`
	// Keep is the number of a cell that later cells find, with its result, in
	// In and Out; zero keeps it nowhere.
	Keep int `json:"keep,omitempty"`
	// Inspect is a question about the state of the interpreter. Code is then
	// that of package inspect, and the value of the result is the answer as
	// JSON. A question changes no state.
	Inspect json.RawMessage `json:"inspect,omitempty"`
}

// Stream is where output goes.
type Stream byte

// The streams, numbered as their descriptors.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Host is what a script has beside its files. A back end calls Write, Read and
// Ask for the script, each from one goroutine at a time.
type Host interface {
	// Started is called once, when the interpreter is ready and before the
	// first line of the script executes.
	Started(Startup)
	// Write takes output as the script produced it, byte for byte. It does
	// not keep p.
	Write(s Stream, p []byte)
	// Read reads standard input. It waits until there is some, and returns
	// io.EOF at its end. An error of ctx means that the script was stopped.
	Read(ctx context.Context, p []byte) (int, error)
	// Ask puts a question to the host program: what call(kind, payload) of
	// the Python module _spool passes on. Both are JSON, and the reply is a
	// [Reply]. It waits as long as the ask may take, and returns early only
	// if ctx ends.
	Ask(ctx context.Context, kind string, payload []byte) []byte
}

// Startup says what it took to have an interpreter ready for a script.
type Startup struct {
	Duration    time.Duration // from the call of Run until the script began
	Interpreter time.Duration // thereof: until there was an interpreter
	PackageLoad time.Duration // thereof: until packages were there; zero without any
	Packages    int
}

// EndedBy says what ended a script that did not end itself.
type EndedBy string

// What can end a script.
const (
	Timeout EndedBy = "timeout" // its time was over
	Memory  EndedBy = "memory"  // it needed more than it may have
	Output  EndedBy = "output"  // it wrote more than it may
	Killed  EndedBy = "kill"    // the caller
	Fuel    EndedBy = "fuel"    // its work was more than it may be
	Crashed EndedBy = "crash"   // the interpreter broke; nothing else did
)

// Exit codes of scripts that did not end themselves, as a shell would show
// the signals that do such things to a process.
const (
	ExitKilled  = 137
	ExitTimeout = 124
)

// Result is how a script ended.
type Result struct {
	// ExitCode is that of sys.exit, 1 after an uncaught exception, else 0.
	ExitCode int
	// EndedBy is empty for a script that ended itself, be it with an
	// exception.
	EndedBy EndedBy
	// Reason says more about EndedBy; for a person.
	Reason string
	// Value is the repr of the value of the last expression of a cell,
	// if that is not None.
	Value *string
	// Exception is the uncaught one, SystemExit included. What is to be read
	// of it is on standard error already.
	Exception *python.Exception
	// Lost says that the interpreter is gone with all its state: the next
	// script of the context meets a new one.
	Lost bool
	// Fuel is what the script used, where the back end counts.
	Fuel int64
	// PeakMemory is the most it had, in bytes, where the back end knows.
	PeakMemory int64
}

// Finding is one thing [Backend.Doctor] found out.
type Finding struct {
	Name string `json:"name"` // of what was looked at: "namespaces"
	OK   bool   `json:"ok"`
	Text string `json:"text"` // what was found, and what to do about it
}

// UnavailableError says that this machine lacks what a back end needs, or
// that what was asked for does not exist.
type UnavailableError struct {
	Backend string
	Hint    string // what to do about it; may be empty
	Err     error
}

func (e *UnavailableError) Error() string { return e.Backend + " back end: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UnavailableError) Unwrap() error { return e.Err }
