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

// Default has the defaults of engines that start processes.
var Default = spool.Limits{
	Grace: DefaultGrace, OutputBytes: DefaultOutputBytes, OutputPolicy: meter.Truncate, Pids: DefaultPids,
}

// Check returns an error if a limit makes no sense.
func Check(l *spool.Limits) error {
	if l.Wall < 0 || l.Idle < 0 || l.Grace < 0 || l.OutputBytes < 0 || l.Pids < 0 {
		return errors.New("limits must not be negative")
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
	}
	return l
}
