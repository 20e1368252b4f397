// Package sandbox is the engine that runs untrusted Python.
// A run is a context; each cell sent to it is a turn, with the events that a
// kernel has, so that a caller swaps one for the other in the spec.
//
// A script can reach what its [python.SandboxConfig] offers: files of its own
// tree, and asks that the program which started the run answers. It has no
// other network, process, environment or file of this machine. The back ends
// enforce this: see package guest and docs/sandbox.md.
//
// Each turn ends with a done event: the script's exit code, or what ended it.
// Stopping a turn ends the run's interpreter. The next turn gets a new one, and
// a notice says so.
package sandbox

import (
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// Defaults for what a [python.SandboxConfig] leaves out.
const (
	DefaultWall        = 5 * time.Minute
	DefaultOutputBytes = 1 << 20 // of each stream, in each turn
	DefaultAskTimeout  = 30 * time.Second
	DefaultGrace       = 2 * time.Second // from an interrupt until the script is stopped
	DefaultMemory      = guest.DefaultMemory
	DefaultOpenFiles   = guest.DefaultOpenFiles
	DefaultFSBytes     = vfs.DefaultQuotaBytes
	DefaultFSFiles     = vfs.DefaultQuotaFiles
)

// Bounds that no configuration changes.
const (
	// MaxQueued turns may wait for their turn.
	MaxQueued = 1024
	// MaxStdin bytes may wait for a script that does not read.
	MaxStdin = 16 << 20
	// MaxAskBytes bounds the payload of an ask.
	MaxAskBytes = guest.MaxAskBytes
	// MaxAsks and MaxAsksBytes bound the asks of one turn: their number, and
	// the bytes of their payloads together. Each of them is in the log.
	MaxAsks      = 16384
	MaxAsksBytes = 256 << 20
	// MaxChangeBytes bounds what an overlay hands out at the end of a run.
	MaxChangeBytes = 256 << 20
)

// The codes of the notices this engine writes.
const (
	NoticeMetrics   = "metrics"    // Data is a [Metrics]
	NoticeStateLost = "state_lost" // the interpreter was replaced
	NoticeChanges   = "changes"    // Data is a [Changes]
)
