package limits_test

import (
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/limits"
)

func TestMerge(t *testing.T) {
	got := limits.Merge(spool.Limits{Wall: 1, Pids: 9}, spool.Limits{Wall: 2, Idle: 3, OutputPolicy: "stop"}, limits.Default)
	want := spool.Limits{Wall: 1, Idle: 3, Grace: limits.DefaultGrace, OutputBytes: limits.DefaultOutputBytes, OutputPolicy: "stop", Pids: 9}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A limit that is added to the type must be merged, too.
func TestMergeCoversEveryField(t *testing.T) {
	full := spool.Limits{Wall: time.Second, Idle: time.Second, Grace: time.Second, OutputBytes: 1, OutputPolicy: "block", Pids: 1, MemoryBytes: 1, CPUs: 1, OpenFiles: 1}
	v := reflect.ValueOf(full)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("this test does not set %s", v.Type().Field(i).Name)
		}
	}
	if diff := cmp.Diff(full, limits.Merge(spool.Limits{}, full)); diff != "" {
		t.Error(diff)
	}
}

func TestCheck(t *testing.T) {
	for _, l := range []spool.Limits{{}, limits.Default, {OutputPolicy: "block"}, {OutputPolicy: "stop"}, {MemoryBytes: limits.MinMemory}, {CPUs: limits.MinCPUs}, {CPUs: 1.5}, {CPUs: limits.MaxCPUs}, {OpenFiles: limits.MinOpenFiles}, {OpenFiles: limits.MaxOpenFiles}} {
		if err := limits.Check(&l); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, l := range []spool.Limits{{Wall: -1}, {Idle: -1}, {Grace: -1}, {OutputBytes: -1}, {Pids: -1}, {MemoryBytes: -1}, {MemoryBytes: limits.MinMemory - 1}, {CPUs: -1}, {CPUs: 0.001}, {CPUs: math.NaN()}, {CPUs: limits.MaxCPUs + 1}, {CPUs: math.Inf(1)}, {OpenFiles: -1}, {OpenFiles: limits.MinOpenFiles - 1}, {OpenFiles: limits.MaxOpenFiles + 1}, {OutputPolicy: "bogus"}} {
		if limits.Check(&l) == nil {
			t.Errorf("%+v passed", l)
		}
	}
}

func TestMillisecondsDoNotOverflow(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 0, 5: 5 * time.Millisecond, -5: -5 * time.Millisecond,
		math.MaxInt64: time.Duration(math.MaxInt64 / int64(time.Millisecond) * int64(time.Millisecond)),
		math.MinInt64: -time.Duration(math.MaxInt64 / int64(time.Millisecond) * int64(time.Millisecond)),
	} {
		if got := limits.Milliseconds(ms); got != want {
			t.Errorf("%d ms are %v, want %v", ms, got, want)
		}
	}
}

func TestSize(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 bytes", 1000: "1000 bytes", 1 << 10: "1 KiB", 512 << 20: "512 MiB", 3 << 29: "1.5 GiB", 2 << 40: "2 TiB",
		100_000_000: "95.3 MiB", math.MaxInt64: "8388607.9 TiB",
	} {
		if got := limits.Size(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
