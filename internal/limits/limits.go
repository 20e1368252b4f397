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
	// MinOpenFiles is what a program needs for its streams and libraries.
	MinOpenFiles = 16
)

// Default has the defaults of engines that start processes.
var Default = spool.Limits{
	Grace: DefaultGrace, OutputBytes: DefaultOutputBytes, OutputPolicy: meter.Truncate, Pids: DefaultPids,
}

// MaxCPUs is more than any machine has.
const MaxCPUs = 65536

// MaxOpenFiles is the most that Linux allows by default.
const MaxOpenFiles = 1 << 20

// Check returns an error if a limit makes no sense.
func Check(l *spool.Limits) error {
	if l.Wall < 0 || l.Idle < 0 || l.Grace < 0 || l.OutputBytes < 0 || l.Pids < 0 || l.MemoryBytes < 0 || l.CPUs < 0 || l.OpenFiles < 0 {
		return errors.New("limits must not be negative")
	}
	if l.MemoryBytes > 0 && l.MemoryBytes < MinMemory {
		return fmt.Errorf("a limit of %d bytes of memory is too small: the smallest is %s", l.MemoryBytes, Size(MinMemory))
	}
	if l.CPUs != 0 && !(l.CPUs >= MinCPUs && l.CPUs <= MaxCPUs) { // not a number, too
		return fmt.Errorf("a limit of %v CPUs: use a number from %v to %v", l.CPUs, MinCPUs, MaxCPUs)
	}
	if l.OpenFiles != 0 && (l.OpenFiles < MinOpenFiles || l.OpenFiles > MaxOpenFiles) {
		return fmt.Errorf("a limit of %d open files: use a number from %d to %d", l.OpenFiles, MinOpenFiles, MaxOpenFiles)
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
		l.OpenFiles = cmp.Or(l.OpenFiles, o.OpenFiles)
	}
	return l
}

// OutOfMemory is the reason of an outcome that a limit of memory caused.
func OutOfMemory(limit int64) string {
	return "ran out of memory (limit " + Size(limit) + ")"
}

// OutOfProcesses is the reason of an outcome that a limit of processes caused.
func OutOfProcesses(limit int) string {
	return fmt.Sprintf("reached its limit of processes and threads (%d)", limit)
}

// The codes of the notices about limits that processes have met.
const (
	NoticePids      = "pids_limit" // forks were refused at the limit of processes
	NoticeThrottled = "throttled"  // processes waited at the limit of processor time
)

// Met returns notices about the limits that a tree of processes has met: how many
// forks were refused, and in how many tenths of a second it had to wait.
func Met(l *spool.Limits, refused, throttled int64) []spool.Notice {
	var met []spool.Notice
	if refused > 0 {
		met = append(met, spool.Notice{Code: NoticePids, Text: OutOfProcesses(cmp.Or(l.Pids, DefaultPids))})
	}
	if throttled > 0 {
		met = append(met, spool.Notice{Code: NoticeThrottled,
			Text: fmt.Sprintf("waited in %d tenths of a second because of its limit of processor time (%v CPUs)", throttled, l.CPUs)})
	}
	return met
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

// Codes are the codes of the notices about limits that a run met, and so of the
// limits in its ledger.
var Codes = []string{"out_of_memory", NoticePids, NoticeThrottled, "output_limit", "timeout", "idle_timeout", "workspace_limit", "budget", "stalled"}

// TurnEnds are the outcomes of turns, and what ended them, that are due to a limit.
var TurnEnds = []string{"timeout", "stalled", "budget", "max_turns", "memory", "output", "fuel"}

// OfTurn is the code of a limit that a turn met, for the ledger of its run.
func OfTurn(end string) string { return "turn_" + end }
