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

// isolate prepares the isolation of a start. It returns nil if none is asked for.
func (e *Engine) isolate(spec *spool.Spec, c *launch.Command) (*isolate.Lease, error) {
	if c.Dir == "" {
		var err error
		if c.Dir, err = os.Getwd(); err != nil {
			return nil, &spool.StartError{Reason: engine.StartBadCwd, Err: err}
		}
	}
	if isolate.Isolates(spec.Isolation) {
		if cause := checkCwd(c.Dir); cause != 0 {
			return nil, startError(c.Path, spec, cause)
		}
	}
	return e.sandboxes.Start(spec, cmp.Or(spec.Limits.Pids, e.opts.Limits.Pids, limits.DefaultPids), c)
}
