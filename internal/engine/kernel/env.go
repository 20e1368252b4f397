package kernel

import (
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/environ"
)

// environment makes the environment of a kernel. A policy in the spec decides
// alone; without one the allow-list decides. The spec's variables come on top.
func environment(spec *spool.Spec, inherited, allow []string) ([]string, error) {
	policy := spec.EnvPolicy
	if policy == nil {
		inherited = environ.Filter(inherited, func(name string) bool {
			return environ.Match(allow, name) || environ.KernelInherits(name)
		})
		policy = &spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}
	}
	return environ.Make(policy, inherited, spec.Env)
}

// Inherit sets, in a spec without a policy for its environment, the variables
// that its kernel inherits from this environment: for a backend whose kernels
// are started by another process.
func Inherit(spec *spool.Spec, inherited []string) error {
	if spec.EnvPolicy != nil {
		return nil
	}
	cfg, err := parseConfig(spec.Config)
	if err != nil {
		return &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	env, err := environment(spec, inherited, cfg.EnvAllow)
	if err != nil {
		return &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	spec.Env = make(map[string]string, len(env))
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		spec.Env[name] = value
	}
	return nil
}
