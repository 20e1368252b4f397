// Package collector tunes the garbage collector for a process through which
// the output of runs passes.
package collector

import (
	"os"
	"runtime/debug"
)

// Some memory is traded for less collecting, up to a point. These percentages hold until
// the first collection, and then follow the work. A server makes more garbage than a
// keeper does: it writes each event for each of its readers.
const (
	percent       = 100
	serverPercent = 200
	memoryLimit   = 128 << 20
	// serverLimit leaves a server room for what a thousand clients that do not
	// read make it hold. With more it grows; see limitFor.
	serverLimit = 176 << 20
)

// Tune tunes the collector of this process, unless the environment does. The
// live heap of a server or a keeper is a few megabytes, and output passes
// through it at hundreds of megabytes a second.
func Tune() {
	tune(percent, memoryLimit)
	followHeap(percent, smallPercent, func(uint64) int64 { return memoryLimit })
	followProgram()
}

// TuneServer is [Tune] for a process with many clients. What it holds for them is
// no reason to let more garbage gather.
func TuneServer() {
	tune(serverPercent, serverLimit)
	followHeap(minPercent, smallPercent, limitFor)
	followProgram()
}

func tune(percent int, limit int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limit)
	}
}
