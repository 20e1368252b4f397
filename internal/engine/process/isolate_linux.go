package process

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
)

// labelSubject is the label of the subject that started a run, on a server that
// several use.
const labelSubject = "spool.access.subject"

// isolate prepares the isolation of a start. It returns nil if none is asked for.
func (e *Engine) isolate(spec *spool.Spec, c *launch.Command) (*isolate.Lease, error) {
	cwd := spec.Cwd
	if cwd == "" {
		var err error
		if cwd, err = os.Getwd(); err != nil {
			return nil, &spool.StartError{Reason: engine.StartBadCwd, Err: err}
		}
		c.Dir = cwd
	}
	if !isolate.Isolates(spec.Isolation) {
		if _, err := isolate.NewPolicy(spec.Isolation, cwd); err != nil {
			return nil, invalid(err)
		}
		return nil, nil
	}
	if cause := checkCwd(cwd); cause != 0 {
		return nil, startError(c.Path, spec, cause)
	}
	pids := cmp.Or(spec.Limits.Pids, e.opts.Limits.Pids, limits.DefaultPids)
	if !e.launcher.Guarantees().Pids { // the isolation limits them
		c.Pids = 0
	}
	lease, err := e.sandboxes.Prepare(spec.Isolation, cwd, pids, spec.Labels[labelSubject])
	if err != nil {
		var refusal *isolate.Refusal
		switch {
		case errors.As(err, &refusal):
			return nil, &spool.StartError{Reason: engine.StartUnsupported, Hint: refusal.Hint(), Err: refusal}
		case errors.Is(err, spool.ErrInvalid):
			return nil, invalid(err)
		}
		return nil, &spool.StartError{Reason: engine.StartOther, Err: err}
	}
	c.Fork, c.Kill = lease.Fork, lease.Kill
	if !spec.Isolation.HostTmp {
		c.Env = withTempDir(c.Env, lease.TempDir(), spec.Isolation.Writable)
	}
	return lease, nil
}

// withTempDir sets TMPDIR to a directory that the process can write to, unless it
// is below a path that is writable anyway.
func withTempDir(env []string, dir string, writable []string) []string {
	for _, root := range writable {
		if isolate.Below(root, "/tmp") {
			return env
		}
	}
	list := make([]string, 0, len(env)+1)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		if name != "TMPDIR" {
			list = append(list, kv)
			continue
		}
		for _, root := range writable {
			if isolate.Below(root, value) {
				return env
			}
		}
	}
	if dir == "/tmp" { // the default of every program
		return list
	}
	return append(list, "TMPDIR="+dir)
}

// report returns what a process has, nil if no isolation was asked for.
func (e *Engine) report(spec *spool.Spec, lease *isolate.Lease) *spool.Isolation {
	switch {
	case lease != nil:
		return lease.Isolation()
	case spec.Isolation == nil:
		return nil
	}
	r := *spec.Isolation
	r.Profile, r.Mechanism = string(isolate.None), string(isolate.None)
	if g := e.launcher.Guarantees(); g.Kill == launch.KillCgroup {
		r.Guarantees = append(r.Guarantees, string(isolate.Kills))
		if g.Pids {
			r.Guarantees = append(r.Guarantees, string(isolate.Processes))
		}
	}
	return &r
}
