package process

import (
	"cmp"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
)

// isolate prepares the isolation and the workspace of a start. It returns nil if
// none is asked for.
func (e *Engine) isolate(spec *spool.Spec, c *launch.Command, out engine.Sink) (*isolate.Lease, *spool.Workspace, error) {
	if c.Dir == "" {
		var err error
		if c.Dir, err = os.Getwd(); err != nil {
			return nil, nil, &spool.StartError{Reason: engine.StartBadCwd, Err: err}
		}
	}
	if isolate.Isolates(spec.Isolation) || spec.Workspace != nil {
		if cause := checkCwd(c.Dir); cause != 0 {
			return nil, nil, startError(c.Path, spec, cause)
		}
	}
	pids := cmp.Or(spec.Limits.Pids, e.opts.Limits.Pids, limits.DefaultPids)
	if spec.Workspace != nil {
		return e.workspace(spec, c, pids, out)
	}
	lease, err := e.sandboxes.Start(spec, pids, c)
	return lease, nil, err
}
