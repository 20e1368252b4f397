package doctor

import (
	"context"
	"errors"

	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/probe"
)

// processChecks are about what ends and limits the processes of a run.
func processChecks() []Check {
	groups := &shared[probe.Trees]{try: func(ctx context.Context) (probe.Trees, error) { return probe.TryTrees(ctx, launch.TreeCgroup) }}
	return []Check{
		{Name: "kill", Try: one(func(ctx context.Context) Finding { return kill(ctx, groups) })},
		{Name: "process-limit", Try: one(func(ctx context.Context) Finding { return processLimit(ctx, groups) })},
		{Name: "memory-limit", Try: one(func(ctx context.Context) Finding { return memoryLimit(ctx, groups) })},
		{Name: "pidfd", Try: one(pidfd)},
		{Name: "system-limits", Try: systemLimits},
	}
}

const (
	nextGroups = "give this user a control group of its own: run spool in a systemd user session (systemd-run --user --scope), or a container with a writable /sys/fs/cgroup"
	nextKernel = "use a newer kernel, or ask who runs this container to allow the call"
)

// kill checks how a process tree ends. Without any way to kill a tree, stop does
// not mean what it says.
func kill(ctx context.Context, groups *shared[probe.Trees]) Finding {
	_, err := groups.get(ctx)
	if err == nil {
		return ok("a control group killed a process tree with an orphan in another session (cgroup.kill)")
	}
	if _, walkErr := probe.TryTrees(ctx, launch.TreeWalk); walkErr != nil {
		return problem(nextKernel,
			"no way to kill a process tree works: control groups: %v; search of /proc: %v", err, walkErr)
	}
	return warning(nextGroups,
		"no control groups (%v): a search of /proc kills process trees; a process that forks fast, or hides its environment, can escape it", err)
}

func processLimit(ctx context.Context, groups *shared[probe.Trees]) Finding {
	found, err := groups.get(ctx)
	switch {
	case err != nil:
		return warning(nextGroups, "the number of processes of a run cannot be limited: %v", err)
	case found.NoProcessLimit != "":
		return warning(nextGroups, "the number of processes of a run cannot be limited: %s", found.NoProcessLimit)
	}
	return ok("a process over its limit could not start a thread (pids.max)")
}

func memoryLimit(ctx context.Context, groups *shared[probe.Trees]) Finding {
	found, err := groups.get(ctx)
	switch {
	case err != nil:
		return warning(nextGroups, "the memory of a run cannot be limited: %v", err)
	case found.NoMemoryLimit != "":
		return warning(nextGroups, "the memory of a run cannot be limited: %s", found.NoMemoryLimit)
	}
	return ok("a process over its limit was killed (memory control group)")
}

func pidfd(ctx context.Context) Finding {
	if err := probe.TryPidfd(ctx); err != nil {
		if errors.Is(err, errors.ErrUnsupported) {
			return problem("use Linux", "Spool starts no processes here: %v", err)
		}
		return problem(nextKernel, "Spool starts no processes here, because it needs descriptors of processes: %v", err)
	}
	return ok("a process was killed and waited for by its descriptor, so that no other process with its number can be hit")
}
