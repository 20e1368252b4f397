// Package sandbox is the engine that runs Python which nobody has to trust.
// A run is a context; each cell sent to it is a turn, with the events that a
// kernel has, so that a caller swaps one for the other in the spec.
//
// What a script can reach is what its [python.SandboxConfig] offers: files of a tree of its
// own, and questions that the program which started the run answers. There is
// no network, no process, no environment and no file of this machine
// otherwise. How that is enforced is the back end's part: see package guest
// and docs/sandbox.md.
//
// Each turn ends with a done event: the script's exit code, or what ended it.
// A turn that had to be stopped costs the run its interpreter, which the next
// turn finds replaced by a new one; a notice says so.
package sandbox

import (
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// What a run gets where its [python.SandboxConfig] says nothing.
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
	// MaxAskBytes bounds what a script may put into a question.
	MaxAskBytes = 8 << 20
	// MaxChangeBytes bounds what an overlay hands out at the end of a run.
	MaxChangeBytes = 256 << 20
)

// The codes of the notices this engine writes.
const (
	NoticeMetrics   = "metrics"    // Data is a [Metrics]
	NoticeStateLost = "state_lost" // the interpreter had to go
	NoticeChanges   = "changes"    // Data is a [Changes]
)
