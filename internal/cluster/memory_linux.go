package cluster

import (
	"bytes"
	"os"
	"strconv"
)

// memory returns how many bytes of memory this machine has, or its container may use,
// and how many are free. They are zero if that cannot be found out.
func memory() (total, free int64) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(b) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseInt(string(fields[1]), 10, 64) // zero means not known
		switch string(fields[0]) {
		case "MemTotal:":
			total = kilobytes << 10
		case "MemAvailable:":
			free = kilobytes << 10
		}
	}
	if most := number("/sys/fs/cgroup/memory.max"); most > 0 && most < total {
		total, free = most, max(0, min(free, most-number("/sys/fs/cgroup/memory.current")))
	}
	return total, free
}

// number returns the number in a file, zero if there is none.
func number(file string) int64 {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64) // max is no number
	return n
}
