package collector

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// dropProgram takes the pages of the program's code and constants out of the
// memory of this process. Only mappings that cannot be written and hold nothing
// but the file are dropped: the system maps their pages again when they are used.
func dropProgram() {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return // then they stay
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	var m mapping
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if next, ok := parseMapping(line); ok {
			m = next
			continue
		}
		private, ok := strings.CutPrefix(line, "Anonymous:")
		if ok && m.path == program && !m.writable && strings.TrimSpace(private) == "0 kB" {
			// An error leaves the pages where they are.
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED)
		}
	}
}

// resident is what this process has in memory. It is zero if nobody knows.
func resident() memory {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return memory{}
	}
	fields := strings.Fields(string(b))
	if len(fields) < 3 {
		return memory{}
	}
	all, _ := strconv.ParseInt(fields[1], 10, 64)
	program, _ := strconv.ParseInt(fields[2], 10, 64)
	page := int64(os.Getpagesize())
	return memory{all * page, program * page}
}

// mapping is a range of the memory of a process.
type mapping struct {
	from, to uintptr
	writable bool
	path     string
}

// parseMapping parses the first line of a mapping in /proc/PID/smaps. It reports
// false for the lines that describe the mapping.
func parseMapping(line string) (mapping, bool) {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 {
		return mapping{}, false
	}
	first, last, ok := strings.Cut(fields[0], "-")
	from, err1 := strconv.ParseUint(first, 16, 64)
	to, err2 := strconv.ParseUint(last, 16, 64)
	if !ok || err1 != nil || err2 != nil || to < from {
		return mapping{}, false
	}
	return mapping{from: uintptr(from), to: uintptr(to), writable: strings.Contains(fields[1], "w"), path: strings.TrimLeft(fields[5], " ")}, true
}
