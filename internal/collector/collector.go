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
)

// Tune tunes the collector of this process, unless the environment does. The
// live heap of a server or a keeper is a few megabytes, and output passes
// through it at hundreds of megabytes a second.
func Tune() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
