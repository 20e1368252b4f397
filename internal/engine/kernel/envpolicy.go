package kernel

import "github.com/spool-run/spool"

// EnvPolicy is what a kernel inherits if nothing else is said, as a policy:
// for a caller whose environment is meant and not that of the engine.
func EnvPolicy() *spool.EnvPolicy {
	return &spool.EnvPolicy{
		Inherit: spool.InheritAll, IgnoreDefaultExcludes: true,
		Exclude: append([]string(nil), secretNames...), IncludeOnly: append([]string(nil), allowedNames...),
	}
}
