package peers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, which Linux fixes for all programs.
const clockTicks = 100

// CPU returns the processor time of a process, and that of the children which it
// has waited for.
func CPU(pid int) (own, reaped time.Duration, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("processor time: %w", err)
	}
	// The second field is the name in parentheses and may contain spaces.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return 0, 0, fmt.Errorf("processor time: short line %q", b)
	}
	var ticks [4]int64 // user, system, and both of the children
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("processor time: %w", err)
		}
	}
	const tick = time.Second / clockTicks
	return time.Duration(ticks[0]+ticks[1]) * tick, time.Duration(ticks[2]+ticks[3]) * tick, nil
}

// RSS returns the resident memory of a process in bytes.
func RSS(pid int) (int64, error) { return memory(pid, "status", "VmRSS:") }

// Share returns the share of a process in the resident memory: a page that n processes
// have mapped counts as 1/n of a page. The shares of the processes of a server add up to
// what it takes, which their resident memory does not.
func Share(pid int) (int64, error) { return memory(pid, "smaps_rollup", "Pss:") }

// Anonymous returns the memory of a process in bytes, without files that it has mapped.
func Anonymous(pid int) (int64, error) { return memory(pid, "status", "RssAnon:") }

// memory returns a line of a file about a process.
func memory(pid int, file, what string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
	if err != nil {
		return 0, fmt.Errorf("resident memory: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, what); ok {
			kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("resident memory: %w", err)
			}
			return kb << 10, nil
		}
	}
	return 0, errors.New("resident memory: the process has ended")
}
