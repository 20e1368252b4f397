package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/python"
)

// Isolates implements [engine.Isolator].
func (*Engine) Isolates() {}

// Isolation implements [engine.Isolated].
func (s *session) Isolation() *spool.Isolation { return s.isolation }

// isolation returns what a run has, whose interpreters are behind the wall of a back
// end: at least what its spec asks for.
func isolation(ctx context.Context, b guest.Backend, setup guest.Setup, spec *spool.Spec, c *python.SandboxConfig) (*spool.Isolation, error) {
	if err := checkIsolation(spec.Isolation, c); err != nil {
		return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	wall, err := b.Wall(ctx, setup)
	switch {
	case ctx.Err() != nil:
		return nil, &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
	case err != nil && isolate.Isolates(spec.Isolation):
		return nil, startError(err)
	case err != nil: // the preparation says why there is no such back end, if there is none
		wall = guest.Wall{}
	}
	has, err := isolate.ParseSet(wall.Guarantees)
	if err != nil {
		return nil, startError(err)
	}
	why := map[isolate.Guarantee]string{
		isolate.Memory:    "memory is limited in the interpreter, not by the system",
		isolate.Processor: "processor time is not limited",
		isolate.Proxied:   "the run may send requests to no host (hosts)",
	}
	for g, text := range wall.Why {
		why[isolate.Guarantee(g)] = text
	}
	if offers(c, python.AskHTTP) || offers(c, python.AskDNS) { // through the program that answers them
		why[isolate.NoNetwork] = "the run may ask for requests to hosts"
		if len(c.Hosts) > 0 && has.Has(isolate.NoNetwork) {
			has = has.With(isolate.Proxied)
		}
		has = has.Without(isolate.NewSet(isolate.NoNetwork))
	}
	mechanism := wall.Mechanism
	if mechanism == "" {
		mechanism = string(isolate.None)
	}
	granted, err := isolate.Grant(spec.Isolation, mechanism, has, why)
	var refusal *isolate.Refusal
	switch {
	case errors.As(err, &refusal):
		return nil, &spool.StartError{Reason: engine.StartUnsupported, Hint: refusal.Hint(), Err: refusal}
	case err != nil:
		return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	return granted, nil
}

// checkIsolation refuses what a sandbox says in its configuration instead.
func checkIsolation(i *spool.Isolation, c *python.SandboxConfig) error {
	if i == nil {
		return nil
	}
	for what, set := range map[string]bool{
		"writable paths": len(i.Writable) > 0, "protected paths": len(i.Protected) > 0, "readable paths": len(i.Readable) > 0, "hidden paths": len(i.Hidden) > 0, "host_tmp": i.HostTmp, "bare": i.Bare,
		"hosts": len(i.Hosts) > 0, "denied hosts": len(i.DeniedHosts) > 0, "asks about hosts": i.AskHosts, "secrets": len(i.Secrets) > 0, "a proxy": i.Proxy != "",
	} {
		if set {
			return fmt.Errorf("the isolation of a sandbox has no %s: its configuration has mounts and hosts", what)
		}
	}
	if i.Profile != string(isolate.ReadOnly) {
		return nil
	}
	for _, m := range c.Mounts {
		if m.Mode == python.MountReadWrite {
			return fmt.Errorf("profile %s excludes the mount %s, which can be written to", i.Profile, m.Guest)
		}
	}
	return nil
}
