//go:build amd64 || arm64

package isolate

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/launch"
)

// rlimits are the limits that a process gives itself before it executes a program,
// for itself and all that descend from it. Zero is none.
type rlimits struct {
	processes int // of the user
	files     int // that one process has open
}

// LimitFiles has a command start with a limit of the files that each of its processes
// may have open; zero is none. The lease is that of the command, or nil. The error is
// a [*spool.StartError].
func LimitFiles(c *launch.Command, lease *Lease, n int) error {
	if n == 0 {
		return nil
	}
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		return &spool.StartError{Reason: engine.StartOther, Err: fmt.Errorf("read the limit of open files: %w", err)}
	}
	if uint64(n) > own.Max {
		return &spool.StartError{Reason: engine.StartUnsupported, Hint: fmt.Sprintf("use --open-files %d or less", own.Max),
			Err: fmt.Errorf("a limit of %d open files is above that of Spool itself, %d", n, own.Max)}
	}
	if lease != nil {
		lease.limits.files = n
		return nil
	}
	c.Fork = func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		plain := child{join: none, ruleset: none}
		return plain.forkExec(path, argv, attr, rlimits{files: n})
	}
	return nil
}
