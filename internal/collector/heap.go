package collector

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// garbage is about how many bytes of garbage gather before they are
	// collected, while the live heap is neither very small nor very large.
	garbage = 8 << 20
	// minPercent bounds the work of the collector when the live heap is large.
	minPercent = 50
)

// percentFor returns the percentage of a live heap by which the heap may grow.
func percentFor(live uint64) int {
	if live == 0 {
		return serverPercent
	}
	return int(min(max(garbage*100/live, minPercent), serverPercent))
}

// followHeap sets the percentage after each collection.
func followHeap() { afterCollection(serverPercent) }

// sentinel is garbage that tells when the collector has run. It has a pointer, so
// that it shares its memory with no other value.
type sentinel struct{ _ *sentinel }

// afterCollection sets the percentage once the collector has run, and each time
// after that. It is the present one now.
func afterCollection(present int) {
	runtime.AddCleanup(new(sentinel), func(present int) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(sample)
		next := present
		if sample[0].Value.Kind() == metrics.KindUint64 {
			next = percentFor(sample[0].Value.Uint64())
		}
		if next != present {
			debug.SetGCPercent(next)
		}
		afterCollection(next)
	}, present)
}
