// Package limits checks the limits of runs and completes them: what a spec
// leaves open is taken from the configuration of the engine, then from the
// defaults.
package limits

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/meter"
)

// The defaults of engines that start processes.
const (
	DefaultGrace       = 5 * time.Second // between SIGTERM and SIGKILL
	DefaultPids        = 4096            // processes and threads at once
	DefaultOutputBytes = 2 << 30         // logged bytes
)

// The smallest limits that make sense: with less a program does not even start.
const (
	MinMemory = 4 << 20
	MinCPUs   = 0.01
)

// Default has the defaults of engines that start processes.
var Default = spool.Limits{
	Grace: DefaultGrace, OutputBytes: DefaultOutputBytes, OutputPolicy: meter.Truncate, Pids: DefaultPids,
}

// MaxCPUs is more than any machine has.
const MaxCPUs = 65536

// Check returns an error if a limit makes no sense.
func Check(l *spool.Limits) error {
	if l.Wall < 0 || l.Idle < 0 || l.Grace < 0 || l.OutputBytes < 0 || l.Pids < 0 || l.MemoryBytes < 0 || l.CPUs < 0 {
		return errors.New("limits must not be negative")
	}
	if l.MemoryBytes > 0 && l.MemoryBytes < MinMemory {
		return fmt.Errorf("a limit of %d bytes of memory is too small: the smallest is %s", l.MemoryBytes, Size(MinMemory))
	}
	if l.CPUs != 0 && !(l.CPUs >= MinCPUs && l.CPUs <= MaxCPUs) { // not a number, too
		return fmt.Errorf("a limit of %v CPUs: use a number from %v to %v", l.CPUs, MinCPUs, MaxCPUs)
	}
	switch l.OutputPolicy {
	case "", meter.Truncate, meter.Block, meter.Stop:
		return nil
	}
	return fmt.Errorf("unknown output policy %q", l.OutputPolicy)
}

// Milliseconds returns a number of milliseconds as a duration, the longest if
// there is none so long.
func Milliseconds(ms int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

// Merge returns the limits with those that are zero taken from the first of
// the others that has them.
func Merge(l spool.Limits, others ...spool.Limits) spool.Limits {
	for i := range others {
		o := &others[i]
		l.Wall = cmp.Or(l.Wall, o.Wall)
		l.Idle = cmp.Or(l.Idle, o.Idle)
		l.Grace = cmp.Or(l.Grace, o.Grace)
		l.OutputBytes = cmp.Or(l.OutputBytes, o.OutputBytes)
		l.OutputPolicy = cmp.Or(l.OutputPolicy, o.OutputPolicy)
		l.Pids = cmp.Or(l.Pids, o.Pids)
		l.MemoryBytes = cmp.Or(l.MemoryBytes, o.MemoryBytes)
		l.CPUs = cmp.Or(l.CPUs, o.CPUs)
	}
	return l
}

// OutOfMemory is the reason of an outcome that a limit of memory caused.
func OutOfMemory(limit int64) string {
	return "ran out of memory (limit " + Size(limit) + ")"
}

// Size returns a number of bytes in the largest unit that keeps at most one digit
// after the point: 512 MiB, 1.5 GiB, 1000 bytes.
func Size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB"}
	for i := len(units); i > 0; i-- {
		unit := int64(1) << (10 * i)
		if n < unit {
			continue
		}
		if tenths := n / (unit / 64) * 10 / 64; tenths%10 != 0 {
			return fmt.Sprintf("%d.%d %s", tenths/10, tenths%10, units[i-1])
		}
		return fmt.Sprintf("%d %s", n/unit, units[i-1])
	}
	return fmt.Sprintf("%d bytes", n)
}
