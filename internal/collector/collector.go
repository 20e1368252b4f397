// Package collector tunes the garbage collector for a process through which
// the output of runs passes.
package collector

import (
	"os"
	"runtime/debug"
)

// Some memory is traded for less collecting, up to a point.
const (
	percent     = 400
	memoryLimit = 128 << 20
	// serverLimit leaves a server room for what a thousand clients that do not
	// read make it hold.
	serverLimit = 176 << 20
)

// Tune tunes the collector of this process, unless the environment does. The
// live heap of a server or a keeper is a few megabytes, and output passes
// through it at hundreds of megabytes a second.
func Tune() { tune(memoryLimit) }

// TuneServer is [Tune] for a process with many clients. What it holds for them is
// no reason to let more garbage gather.
func TuneServer() {
	tune(serverLimit)
	if os.Getenv("GOGC") == "" {
		followHeap()
	}
}

func tune(limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
