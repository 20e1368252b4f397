package doctor

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/launch"
)

// The limits of this user below which there is a warning.
const (
	lowOpenFiles = 4096 // each live run takes a few in the keeper
	lowProcesses = 512  // of all programs of the user
)

// systemLimits looks at what the system lets this user have. The kernel keeps
// these numbers exactly, so there is nothing to try.
func systemLimits(context.Context) []Finding {
	var found []Finding
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		found = append(found, warning(nextKernel, "cannot read the limit of open files: %v", err))
	} else if files.Max < lowOpenFiles {
		found = append(found, warning(fmt.Sprintf("raise it: ulimit -Hn %d, or LimitNOFILE= of the service", lowOpenFiles),
			"a process may open only %d files, so that a keeper can hold few runs at once", files.Max))
	}
	processes, source := processRoom()
	if processes < lowProcesses {
		found = append(found, warning("raise "+source,
			"only %d more processes and threads can be started (%s): runs fail to start, and a run that starts many can starve the keeper", processes, source))
	}
	if len(found) == 0 {
		found = append(found, ok("a process may open %d files", files.Max))
	}
	return found
}

// processRoom returns how many processes may be started, and what limits them.
func processRoom() (uint64, string) {
	room, source := ^uint64(0), ""
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &limit); err == nil {
		room, source = limit.Cur, "ulimit -u"
	}
	if now, most, ok := launch.OwnProcesses(); ok && uint64(most-min(now, most)) < room {
		room, source = uint64(most-min(now, most)), "pids.max of the control group that spool runs in"
	}
	return room, source
}
