package collector

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/polltest"
)

func TestPercentFor(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		live, garbage  uint64
		server, keeper int
	}{
		{0, maxGarbage, 200, 200},
		{1 * mib, maxGarbage, 200, 200},
		{1 * mib, 1 * mib, 50, 50},
		{1 * mib, 4 * mib, 125, 125},
		{4 * mib, maxGarbage, 200, 200},
		{8 * mib, maxGarbage, 100, 100},
		{16 * mib, maxGarbage, 50, 100},
		{1 << 30, maxGarbage, 50, 100},
		{4 * mib, 1 * mib, 25, 25},
		{8 * mib, 1 * mib, cheapPercent, cheapPercent},
		{cheap, 1 * mib, cheapPercent, cheapPercent},
		{cheap + 1, 1 * mib, 50, 100},
	} {
		if got := percentFor(tt.live, tt.garbage, minPercent, smallPercent); got != tt.server {
			t.Errorf("server, %d bytes and %d of garbage: %d %%, want %d", tt.live, tt.garbage, got, tt.server)
		}
		if got := percentFor(tt.live, tt.garbage, percent, smallPercent); got != tt.keeper {
			t.Errorf("keeper, %d bytes and %d of garbage: %d %%, want %d", tt.live, tt.garbage, got, tt.keeper)
		}
	}
}

func TestGarbageFor(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		before uint64
		ago    time.Duration
		want   uint64
	}{
		{maxGarbage, 0, maxGarbage}, {4 * mib, often - 1, 8 * mib}, {minGarbage, 0, 2 * minGarbage},
		{4 * mib, often, 4 * mib}, {4 * mib, seldom - 1, 4 * mib},
		{4 * mib, seldom, 2 * mib}, {minGarbage, time.Hour, minGarbage},
	} {
		if got := garbageFor(tt.before, tt.ago); got != tt.want {
			t.Errorf("%d bytes, collected %v ago: %d, want %d", tt.before, tt.ago, got, tt.want)
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
	followHeap(minPercent, smallPercent, limitFor)
	polltest.Until(t, "the settings for a large heap", func() bool {
		runtime.GC()
		sample := []metrics.Sample{{Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"}}
		metrics.Read(sample)
		return sample[0].Value.Uint64() == minPercent && sample[1].Value.Uint64() > uint64(len(held))*5/4
	})
	runtime.KeepAlive(held)
}
