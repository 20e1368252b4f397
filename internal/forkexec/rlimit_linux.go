package forkexec

import (
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// SoftNofile returns the limit of open files that programs start with, or nil if it cannot
// be found out. The runtime raises it for this process, and only the standard library knows
// what it was.
var SoftNofile = sync.OnceValue(func() *unix.Rlimit {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return nil
	}
	out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn").Output()
	if err != nil {
		return nil
	}
	if n, err := strconv.ParseUint(strings.TrimSpace(string(out)), 10, 64); err == nil {
		l.Cur = n
	}
	return &l
})
