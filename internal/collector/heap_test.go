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

// The percentage follows the live heap.
func TestFollowHeap(t *testing.T) {
	before := debug.SetGCPercent(serverPercent)
	defer debug.SetGCPercent(before)
	held := make([]byte, 64<<20)
	followHeap()
	polltest.Until(t, "the percentage of a large heap", func() bool {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64() == minPercent
	})
	runtime.KeepAlive(held)
}
