package doctor

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/launch"
)

// keeperChecks are about processes that outlive commands.
func keeperChecks(o Options) []Check {
	return []Check{
		{Name: "keepers", Try: func(ctx context.Context) []Finding { return keepers(ctx, o.Dir) }},
		{Name: "left-processes", Try: leftProcesses},
	}
}

// keepers tries to connect to each keeper of the state directory.
func keepers(ctx context.Context, dir string) []Finding {
	live, err := host.Owners(dir)
	if err != nil {
		return []Finding{problem("choose another state directory with --state", "%v", err)}
	}
	var found []Finding
	isLive := make(map[string]bool)
	for _, o := range live {
		isLive[o.ID] = true
		found = append(found, keeper(ctx, o)...)
	}
	files, err := filepath.Glob(filepath.Join(dir, "hosts", "*.json"))
	if err != nil {
		return []Finding{problem("choose another state directory with --state", "look for keepers: %v", err)}
	}
	for _, file := range files {
		if id := strings.TrimSuffix(filepath.Base(file), ".json"); !isLive[id] {
			found = append(found, warning("run spool ps: it ends what that keeper left and closes its logs",
				"keeper %s was killed, and its runs are not closed yet", id))
		}
	}
	switch {
	case len(found) > 0:
		return found
	case len(live) == 0:
		return []Finding{ok("no keeper runs")}
	}
	return []Finding{ok("%d keepers run, of this build of spool, and accept connections", len(live))}
}

// keeper checks one live keeper. It returns nothing if all is well.
func keeper(ctx context.Context, o host.Owner) []Finding {
	if socket, ok := strings.CutPrefix(o.Address, "keeper:"); ok {
		c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return []Finding{warning(fmt.Sprintf("end it and its runs with kill %d, then run spool ps", o.Pid),
				"keeper %s (pid %d) lives, and no command can connect to it, so that its runs cannot be used: %v", o.ID, o.Pid, err)}
		}
		_ = c.Close()
	}
	if program := otherProgram(o.Pid); program != "" {
		return []Finding{warning("wait for its runs, or end them: spool ps --live lists them, and spool kill ends them",
			"keeper %s (pid %d) is of another build of spool, %s: it ends with its last run", o.ID, o.Pid, program)}
	}
	return nil
}

// otherProgram returns the program of a process if it is not this one.
func otherProgram(pid int) string {
	const proc = "/proc"
	exe := filepath.Join(proc, strconv.Itoa(pid), "exe")
	theirs, err := os.Stat(exe)
	if err != nil {
		return ""
	}
	ours, err := os.Stat(filepath.Join(proc, "self", "exe"))
	if err != nil || os.SameFile(ours, theirs) {
		return ""
	}
	name, err := os.Readlink(exe)
	if err != nil {
		return ""
	}
	return name
}

// leftProcesses looks for processes of runs whose keeper is gone.
func leftProcesses(context.Context) []Finding {
	owned, err := launch.Owned()
	if err != nil {
		return []Finding{warning("use Linux", "cannot look for processes that were left: %v", err)}
	}
	live, err := liveOwners()
	if err != nil {
		return []Finding{warning("run spool doctor as the user whose processes they are", "cannot look for processes that were left: %v", err)}
	}
	var found []Finding
	for _, owner := range slices.Sorted(maps.Keys(owned)) {
		if live(owner) {
			continue
		}
		pids := make([]string, len(owned[owner]))
		for i, pid := range owned[owner] {
			pids[i] = strconv.Itoa(pid)
		}
		found = append(found, warning("run spool ps with the state directory of that keeper; it ends them; otherwise: kill -9 "+strings.Join(pids, " "),
			"%d processes of the dead keeper %s are left: %s", len(pids), owner, list(pids)))
	}
	if len(found) == 0 {
		found = append(found, ok("no process of a dead keeper is left"))
	}
	return found
}
