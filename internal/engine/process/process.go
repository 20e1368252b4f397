// Package process is the engine that runs operating system processes: an
// argument vector, never a shell; pipes or a terminal; an environment made by
// policy; limits; and an end that includes everything the process started.
//
// One goroutine owns a process's output and its exit, so the order of events
// in the log is right by construction. Output that was there before the
// process ended comes before the exited event; what background children write
// later comes after it; and the run is over when nobody holds its streams.
package process

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// What a run gets when neither its spec nor [Options] say otherwise.
const (
	DefaultRows = 24
	DefaultCols = 80
)

// The codes of the notices this engine writes.
const (
	NoticeTimeout     = "timeout"      // the wall time limit was reached
	NoticeIdleTimeout = "idle_timeout" // so was the one for time without output
	NoticeOutputLimit = "output_limit"
	NoticeTreeKill    = "tree_kill"    // processes had left the process group
	NoticeStreamsHeld = "streams_held" // somebody out of reach held the streams
	NoticeKillFailed  = "kill_failed"  // some of the tree may be alive
)

// Options configure an engine. The zero value is usable.
type Options struct {
	// Owner names this engine's process trees for [launch.SweepOwner];
	// empty lets the engine choose.
	Owner string
	// Tree says how process trees are held.
	Tree launch.TreeMode
	// Environ is what [spool.EnvPolicy] inherits from; nil means the
	// environment of this process.
	Environ []string
	// Limits are the defaults of a run's limits; where they are zero too,
	// those of package limits apply.
	Limits spool.Limits
	// Spares is how many pairs of pipes to have ready for processes to come,
	// so that a start need not make them.
	Spares int
}

// Guarantees say what the engine can promise on this machine.
type Guarantees = launch.Guarantees
