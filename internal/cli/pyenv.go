package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/environ"
)

// The values of --env-from.
const (
	envUsual = "usual" // the names in the help text
	envAll   = "all"
)

// checkEnvFrom checks the value of --env-from.
func (a *app) checkEnvFrom(from string) error {
	_, remote := a.remote()
	switch {
	case from == "" || from == envUsual:
		return nil
	case from != envAll:
		return usageErrorf("--env-from %q: use %s or %s", from, envUsual, envAll)
	case remote:
		return usageErrorf("--env-from all is for interpreters on this machine: with --server, pass variables with --env NAME")
	}
	return nil
}

// pyEnvironment says which variables of this process the interpreter gets.
func (a *app) pyEnvironment(spec *spool.Spec, from string, remote bool) {
	switch {
	case from == envAll:
		spec.EnvPolicy = &spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}
	case a.verbose && !remote:
		a.sayDropped(spec)
	}
}

// sayDropped says which variables of this process the interpreter does not get.
func (a *app) sayDropped(spec *spool.Spec) {
	var dropped []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if _, given := spec.Env[name]; !given && name != "" && !environ.KernelInherits(name) {
			dropped = append(dropped, name)
		}
	}
	if len(dropped) > 0 {
		slices.Sort(dropped)
		fmt.Fprintf(a.stderr, "spool: variables that Python does not get: %s (use --env NAME, or --env-from all)\n", strings.Join(dropped, ", "))
	}
}
