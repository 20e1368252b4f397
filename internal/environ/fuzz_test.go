package environ

import (
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// FuzzMake checks that a variable that a policy excludes does not reach a run,
// and that every variable has a name and a value from the policy or the spec.
func FuzzMake(f *testing.F) {
	f.Add("all", "PATH=/bin\nAPI_KEY=x\n=odd\nA", "A*", "", "B", "1")
	f.Add("core", "PATH=/bin\nhome=/x", "", "P?TH", "PATH", "")
	f.Add("none", "PATH=/bin", "***?", "[", "NODE_REPL_AUTH_TOKEN", "secret")
	f.Fuzz(func(t *testing.T, inherit, inherited, exclude, only, name, value string) {
		p := &spool.EnvPolicy{Inherit: inherit, Exclude: []string{exclude}}
		if only != "" {
			p.IncludeOnly = []string{only}
		}
		given := strings.Split(inherited, "\n")
		env, err := Make(p, given, map[string]string{name: value})
		if err != nil {
			return
		}
		for _, v := range env {
			n, text, ok := strings.Cut(v, "=")
			switch {
			case !ok || n == "":
				t.Errorf("variable %q", v)
			case slices.Contains(droppedNames, n):
				t.Errorf("%s was not dropped", n)
			case n == name && text == value:
			case Match(secretPatterns, n) || Match(p.Exclude, n) || only != "" && !Match(p.IncludeOnly, n):
				t.Errorf("%s was let through", n)
			case !slices.Contains(given, v):
				t.Errorf("%q was invented", v)
			}
		}
		if !slices.IsSorted(env) {
			t.Errorf("not sorted: %q", env)
		}
	})
}
