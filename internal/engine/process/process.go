// Package process is the engine that runs operating system processes: an
// argument vector, never a shell; pipes or a terminal; an environment made by
// policy; limits; and an end that includes everything the process started.
//
// One goroutine owns a process's output and its exit, so the order of events
// in the log is right by construction. Output written before the process exits
// comes before the exited event; output that background children write later
// comes after it. The run ends when no process has its streams open.
package process

import (
	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// The codes of the notices this engine writes.
const (
	NoticeTimeout     = "timeout"      // the wall time limit was reached
	NoticeIdleTimeout = "idle_timeout" // the limit of time without output was reached
	NoticeOutputLimit = "output_limit"
	NoticeOutOfMemory = "out_of_memory" // the kernel killed a process at the limit of memory
	NoticeTreeKill    = "tree_kill"     // processes outside the process group were killed
	NoticeStreamsHeld = "streams_held"  // a process that could not be killed had the streams open
	NoticeKillFailed  = "kill_failed"   // processes of the tree may be alive
)

// Options configure an engine. The zero value is usable.
type Options struct {
	// Owner names this engine's process trees for [launch.SweepOwner];
	// empty lets the engine choose.
	Owner string
	// Tree selects how process trees are tracked.
	Tree launch.TreeMode
	// Environ is the environment that [spool.EnvPolicy] inherits from; nil
	// means that of this process.
	Environ []string
	// Limits are the defaults of a run's limits; where they are zero too,
	// those of package limits apply.
	Limits spool.Limits
	// Spares is how many pairs of pipes the engine prepares for later starts.
	Spares int
	// SpareGroups is how many control groups it prepares, once there is more than
	// one process at a time.
	SpareGroups int
}

// Guarantees describe what the engine can promise on this machine.
type Guarantees = launch.Guarantees
