package collector

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/spool-run/spool/internal/polltest"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{
		0: 200, 1 << 20: 200, 4 << 20: 200, 8 << 20: 100, 16 << 20: 50, 1 << 30: 50,
	} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes: %d %%, want %d", live, got, want)
		}
	}
}

func TestLimitFor(t *testing.T) {
	for live, want := range map[uint64]int64{
		0: serverLimit, 80 << 20: serverLimit, 160 << 20: 272 << 20, 4 << 30: 6<<30 + 32<<20,
	} {
		if got := limitFor(live); got != want {
			t.Errorf("%d bytes: %d, want %d", live, got, want)
		}
	}
}

// The percentage and the limit follow the live heap.
func TestFollowHeap(t *testing.T) {
	before := debug.SetGCPercent(serverPercent)
	defer debug.SetGCPercent(before)
	limit := debug.SetMemoryLimit(serverLimit)
	defer debug.SetMemoryLimit(limit)
	held := make([]byte, 256<<20)
	followHeap()
	polltest.Until(t, "the settings for a large heap", func() bool {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64() == minPercent && sample[1].Value.Uint64() > uint64(len(held))*5/4
	})
	runtime.KeepAlive(held)
}
