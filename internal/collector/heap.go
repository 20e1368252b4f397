package collector

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// About so many bytes of garbage gather before they are collected, while the live heap is
// neither very small nor very large: less while collections are seldom and cheap, because
// work that makes little garbage needs no room for more.
const (
	minGarbage, maxGarbage = 2 << 20, 8 << 20
	often, seldom          = 200 * time.Millisecond, 500 * time.Millisecond // between two collections
	cheap                  = 32 << 20                                       // bytes to look at
	// minPercent and cheapPercent bound the work of a collection, per byte that it frees,
	// when the live heap is large, and when it is cheap.
	minPercent   = 50
	cheapPercent = 15
	// smallPercent is for a live heap that is small: every collection also looks at all
	// global data and at all stacks.
	smallPercent = 200
	// minHeap times the percentage is the size below which the runtime does not collect.
	minHeap = 4 << 20
)

// garbageFor returns how much garbage may gather if as much as before did in some time.
func garbageFor(before uint64, ago time.Duration) uint64 {
	switch {
	case ago < often:
		return min(2*before, maxGarbage)
	case ago >= seldom:
		return max(before/2, minGarbage)
	}
	return before
}

// percentFor returns the percentage of a live heap and its stacks by which the heap may
// grow, at most and, if collections are not cheap, at least.
func percentFor(live, garbage uint64, least, most int) int {
	if live == 0 {
		return most
	}
	if live <= cheap && garbage < maxGarbage {
		least = cheapPercent
	}
	wanted := min(garbage*100/live, (live+garbage)*100/minHeap)
	return min(max(int(wanted), least), most)
}

// limitFor returns the memory that a server may have whose live heap and stacks have a
// size. A limit below what lives would have the collector run all the time: ten
// thousand streams need more than serverLimit.
func limitFor(live uint64) int64 {
	const room = 32 << 20 // for garbage, and for what the runtime itself needs
	return max(serverLimit, int64(live)/2*3+room)
}

// followHeap sets the percentage, between two bounds, and the limit after each
// collection, unless the environment does.
func followHeap(least, most int, limitFor func(live uint64) int64) {
	percent, limit := 0, int64(0) // not known
	garbage, last := uint64(2*minGarbage), time.Now()
	afterCollections(func() {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}}
		metrics.Read(sample)
		heap, stacks := sample[0].Value, sample[1].Value
		if heap.Kind() != metrics.KindUint64 || stacks.Kind() != metrics.KindUint64 {
			return
		}
		live, now := heap.Uint64()+stacks.Uint64(), time.Now()
		garbage, last = garbageFor(garbage, now.Sub(last)), now
		if p := percentFor(live, garbage, least, most); p != percent && os.Getenv("GOGC") == "" {
			debug.SetGCPercent(p)
			percent = p
		}
		if l := limitFor(live); l != limit && os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(l)
			limit = l
		}
	})
}

// sentinel is garbage that tells when the collector has run. It has a pointer, so
// that it shares its memory with no other value.
type sentinel struct{ _ *sentinel }

// afterCollections calls f once the collector has run, and each time after that.
func afterCollections(f func()) {
	runtime.AddCleanup(new(sentinel), func(f func()) {
		f()
		afterCollections(f)
	}, f)
}
