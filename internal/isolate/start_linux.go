//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/launch"
)

// labelSubject is the label of the subject that started a run, on a server that
// several use.
const labelSubject = "spool.access.subject"

// Start prepares the isolation that a spec asks for, and has a command with a limit
// of processes start in it. The directory of the command must be absolute. It
// returns nil if the spec does not isolate the run. The error is a
// [*spool.StartError].
func (m *Sandboxes) Start(spec *spool.Spec, pids int, c *launch.Command) (*Lease, error) {
	if spec.Isolation == nil {
		return nil, nil
	}
	if !Isolates(spec.Isolation) {
		if _, err := NewPolicy(spec.Isolation, c.Dir); err != nil {
			return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
		}
		return nil, nil
	}
	if !m.launcher.Guarantees().Pids { // the isolation limits them
		c.Pids = 0
	}
	lease, err := m.prepareLimited(spec.Isolation, c.Dir, pids, spec.Labels[labelSubject], nil, limitedBy(c))
	return m.started(spec, c, lease, err)
}

// limitedBy returns the guarantees that the limits of a command give.
func limitedBy(c *launch.Command) Set {
	var limited Set
	if c.Memory > 0 {
		limited = limited.With(Memory)
	}
	if c.CPUs > 0 {
		limited = limited.With(Processor)
	}
	return limited
}

// StartOverlay is [Sandboxes.Start] for a run that sees an overlay, isolated or not.
// Without an overlay it is Start. No other process may see the overlay: what an
// earlier lease of it started has ended.
func (m *Sandboxes) StartOverlay(spec *spool.Spec, pids int, c *launch.Command, o *Overlay) (*Lease, error) {
	if o == nil {
		return m.Start(spec, pids, c)
	}
	if spec.Isolation != nil && !Isolates(spec.Isolation) {
		if _, err := NewPolicy(spec.Isolation, c.Dir); err != nil {
			return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
		}
	}
	if Isolates(spec.Isolation) && !m.launcher.Guarantees().Pids {
		c.Pids = 0
	}
	lease, err := m.prepareOverlay(spec.Isolation, c.Dir, pids, spec.Labels[labelSubject], o, limitedBy(c))
	return m.started(spec, c, lease, err)
}

// started has a command start with a lease, or explains why there is none.
func (m *Sandboxes) started(spec *spool.Spec, c *launch.Command, lease *Lease, err error) (*Lease, error) {
	if err != nil {
		var refusal *Refusal
		switch {
		case errors.Is(err, ErrNoOverlay):
			return nil, &spool.StartError{Reason: engine.StartUnsupported, Err: err,
				Hint: "use --workspace snapshot, which reports changes and cannot undo them, or --workspace auto"}
		case errors.As(err, &refusal):
			return nil, &spool.StartError{Reason: engine.StartUnsupported, Hint: refusal.Hint(), Err: refusal}
		case errors.Is(err, spool.ErrInvalid):
			return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
		}
		return nil, &spool.StartError{Reason: engine.StartOther, Err: fmt.Errorf("isolate the run: %w", err)}
	}
	if gateway := lease.in.gateway(); gateway != nil {
		if lease.network, err = newNetwork(gateway, lease.policy, spec.Isolation.AskHosts); err != nil {
			lease.Release()
			return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
		}
		if proxy := lease.policy.Proxy; proxy != "" {
			c.Env = lease.network.withAddress(c.Env, proxy)
		} else {
			c.Env = lease.network.withProxy(c.Env, lease.policy.Rules)
		}
	}
	c.Fork, c.On, c.Kill = lease.Fork, lease.in.on(), lease.Kill
	if lease.wall.mechanism == GVisor {
		c.Pids, c.Signal = 0, lease.Signal
	}
	if Isolates(spec.Isolation) && !spec.Isolation.HostTmp {
		c.Env = withTempDir(c.Env, lease.TempDir(), spec.Isolation.Writable)
	}
	return lease, nil
}

// withTempDir sets TMPDIR to a directory that the process can write to, unless it
// is below a path that is writable anyway.
func withTempDir(env []string, dir string, writable []string) []string {
	for _, root := range writable {
		if Below(root, "/tmp") {
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
			if Below(root, value) {
				return env
			}
		}
	}
	if dir == "/tmp" { // the default of every program
		return list
	}
	return append(list, "TMPDIR="+dir)
}

// Report returns what a run has with the lease of its start, for [spool.Info]. It is
// nil if the spec has no request.
func (m *Sandboxes) Report(spec *spool.Spec, lease *Lease) *spool.Isolation {
	switch {
	case lease != nil && lease.Isolation() != nil:
		return lease.Isolation()
	case spec.Isolation == nil:
		return nil
	}
	r := *spec.Isolation
	r.Profile, r.Mechanism = string(None), string(None)
	if g := m.launcher.Guarantees(); g.Kill == launch.KillCgroup {
		r.Guarantees = append(r.Guarantees, string(Kills))
		if g.Pids {
			r.Guarantees = append(r.Guarantees, string(Processes))
		}
	}
	return &r
}
