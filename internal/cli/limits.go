package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/limits"
)

// limitFlags are the flags that set the limits of a run.
type limitFlags struct {
	wall, idle, grace time.Duration
	output            byteCount
	policy            string
	pids              int
	memory            byteCount
	cpus              cpuCount
	files             fileCount
}

// add defines the flags. The defaults of a server have a prefix.
func (l *limitFlags) add(flags *pflag.FlagSet, prefix string) {
	flags.DurationVar(&l.wall, prefix+"timeout", 0, "stop after this `time`")
	flags.DurationVar(&l.idle, prefix+"idle-timeout", 0, "stop after this `time` without output")
	flags.DurationVar(&l.grace, prefix+"grace", 0, "`time` between SIGTERM and SIGKILL (default 5s)")
	flags.Var(&l.output, prefix+"output-limit", "`bytes` of output to keep, such as 500000 or 64M (default 2G)")
	flags.StringVar(&l.policy, prefix+"output-policy", "", "what happens at the output limit: truncate, block or stop (default truncate)")
	flags.IntVar(&l.pids, prefix+"pids", 0, "limit of processes and threads (default 4096)")
	flags.Var(&l.memory, prefix+"memory", "`bytes` of memory and swap that all processes may use together, such as 512m or 2g (default no limit)")
	flags.Var(&l.cpus, prefix+"cpus", "`number` of processors whose time all processes may use together, such as 1.5 (default no limit)")
	l.files.add(flags, prefix)
}

func (l *limitFlags) limits() (spool.Limits, error) {
	set := spool.Limits{
		Wall: l.wall, Idle: l.idle, Grace: l.grace,
		OutputBytes: int64(l.output), OutputPolicy: l.policy, Pids: l.pids,
		MemoryBytes: int64(l.memory), CPUs: float64(l.cpus), OpenFiles: int(l.files),
	}
	switch set.OutputPolicy {
	case "", "truncate", "block", "stop":
	default:
		return set, usageErrorf("--output-policy %q: use truncate, block or stop", l.policy)
	}
	if 0 < l.memory && l.memory < limits.MinMemory {
		return set, usageErrorf("--memory: the smallest limit is %s", limits.Size(limits.MinMemory))
	}
	if l.wall < 0 || l.idle < 0 || l.grace < 0 || l.output < 0 || l.pids < 0 {
		return set, usageErrorf("limits must not be negative")
	}
	return set, nil
}

// cpuCount is a flag for a number of processors: 2, 0.5.
type cpuCount float64

// Set implements [pflag.Value].
func (c *cpuCount) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= limits.MinCPUs && n <= limits.MaxCPUs) {
		return fmt.Errorf("%q is not a number of processors, such as 2 or 0.5; the smallest is %v", s, limits.MinCPUs)
	}
	*c = cpuCount(n)
	return nil
}

// String implements [pflag.Value].
func (c *cpuCount) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*c), 'g', -1, 64)
}

// Type implements [pflag.Value].
func (c *cpuCount) Type() string { return "number" }

// fileCount is a flag for a limit of open files.
type fileCount int

// add defines the flag.
func (c *fileCount) add(flags *pflag.FlagSet, prefix string) {
	flags.Var(c, prefix+"open-files", "`number` of files that each process may have open (default that of Spool itself)")
}

// Set implements [pflag.Value].
func (c *fileCount) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < limits.MinOpenFiles || n > limits.MaxOpenFiles {
		return fmt.Errorf("%q is not a number of open files from %d to %d", s, limits.MinOpenFiles, limits.MaxOpenFiles)
	}
	*c = fileCount(n)
	return nil
}

// String implements [pflag.Value].
func (c *fileCount) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.Itoa(int(*c))
}

// Type implements [pflag.Value].
func (c *fileCount) Type() string { return "number" }

// byteCount is a flag for a number of bytes: 4096, 64K, 10M, 2G.
type byteCount int64

var byteUnits = map[byte]int64{'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30, 'T': 1 << 40}

// Set implements [pflag.Value].
func (c *byteCount) Set(s string) error {
	digits := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	unit := int64(1)
	if n := len(digits); n > 0 && byteUnits[digits[n-1]] != 0 {
		unit, digits = byteUnits[digits[n-1]], digits[:n-1]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return fmt.Errorf("%q is not a number of bytes, such as 500000, 64M or 2G", s)
	}
	*c = byteCount(n * unit)
	return nil
}

// String implements [pflag.Value].
func (c *byteCount) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*c), 10)
}

// Type implements [pflag.Value].
func (c *byteCount) Type() string { return "bytes" }

// formatBytes formats a size for a table: 17, 4.2K, 380M.
func formatBytes(n int64) string {
	v, unit := float64(n), ""
	for _, u := range []string{"K", "M", "G", "T"} {
		if v < 1000 {
			break
		}
		v, unit = v/1024, u
	}
	if unit != "" && v < 10 {
		return fmt.Sprintf("%.1f%s", v, unit)
	}
	return fmt.Sprintf("%.0f%s", v, unit)
}
