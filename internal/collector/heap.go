package collector

import (
	"os"
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

// limitFor returns the memory that a server may have whose live heap and stacks have a
// size. A limit below what lives would have the collector run all the time: ten
// thousand streams need more than serverLimit.
func limitFor(live uint64) int64 {
	const room = 32 << 20 // for garbage, and for what the runtime itself needs
	return max(serverLimit, int64(live)/2*3+room)
}

// followHeap sets the percentage and the limit after each collection, unless the
// environment does.
func followHeap() { afterCollection(settings{serverPercent, serverLimit}) }

// settings are what the collector goes by.
type settings struct {
	percent int
	limit   int64
}

// sentinel is garbage that tells when the collector has run. It has a pointer, so
// that it shares its memory with no other value.
type sentinel struct{ _ *sentinel }

// afterCollection changes the settings once the collector has run, and each time
// after that.
func afterCollection(present settings) {
	runtime.AddCleanup(new(sentinel), func(present settings) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(sample)
		next := present
		if live, stacks := sample[0].Value, sample[1].Value; live.Kind() == metrics.KindUint64 && stacks.Kind() == metrics.KindUint64 {
			next = settings{percentFor(live.Uint64()), limitFor(live.Uint64() + stacks.Uint64())}
		}
		if next.percent != present.percent && os.Getenv("GOGC") == "" {
			debug.SetGCPercent(next.percent)
		}
		if next.limit != present.limit && os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(next.limit)
		}
		afterCollection(next)
	}, present)
}
