package process

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// coreNames are what [spool.InheritCore] takes over.
var coreNames = []string{
	"PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER",
}

// secretPatterns match the names a policy drops unless it is told not to.
var secretPatterns = []string{"*KEY*", "*SECRET*", "*TOKEN*"}

// droppedNames never reach a process, not even from its own spec: they are
// credentials of the server and of what drives it.
var droppedNames = []string{
	"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
	"NODE_REPL_AUTH_TOKEN",
	"OPENAI_FEDERATION_RULE_ID",
	"OPENAI_IDENTITY_TOKEN_FILE",
	"OPENAI_WORKLOAD_IDENTITY_CONTEXT",
	"CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
}

// Environ returns the environment of a run, sorted by name: what the policy
// makes of the inherited variables, overlaid with env. Without a policy it is
// env alone.
func Environ(policy *spool.EnvPolicy, inherited []string, env map[string]string) ([]string, error) {
	vars := make(map[string]string, len(env))
	if policy != nil {
		if err := applyPolicy(vars, policy, inherited); err != nil {
			return nil, err
		}
	}
	for name, value := range env {
		if name == "" || strings.Contains(name, "=") {
			return nil, fmt.Errorf("invalid environment variable name %q", name)
		}
		vars[name] = value
	}
	for _, name := range droppedNames {
		delete(vars, name)
	}
	list := make([]string, 0, len(vars))
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

func applyPolicy(vars map[string]string, p *spool.EnvPolicy, inherited []string) error {
	keep := func(string) bool { return true }
	switch p.Inherit {
	case spool.InheritAll, "":
	case spool.InheritCore:
		keep = func(name string) bool {
			return slices.ContainsFunc(coreNames, func(core string) bool { return strings.EqualFold(core, name) })
		}
	case spool.InheritNone:
		inherited = nil
	default:
		return fmt.Errorf("unknown environment inheritance %q", p.Inherit)
	}
	for _, v := range inherited {
		if name, value, ok := strings.Cut(v, "="); ok && name != "" && keep(name) {
			vars[name] = value
		}
	}
	if !p.IgnoreDefaultExcludes {
		dropMatching(vars, secretPatterns)
	}
	dropMatching(vars, p.Exclude)
	for name, value := range p.Set {
		if name == "" || strings.Contains(name, "=") {
			return fmt.Errorf("invalid environment variable name %q", name)
		}
		vars[name] = value
	}
	if len(p.IncludeOnly) > 0 {
		for name := range vars {
			if !matchAny(p.IncludeOnly, name) {
				delete(vars, name)
			}
		}
	}
	return nil
}

func dropMatching(vars map[string]string, patterns []string) {
	for name := range vars {
		if matchAny(patterns, name) {
			delete(vars, name)
		}
	}
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matchGlob(p, name) })
}

// matchGlob matches without regard to case; * stands for any characters, ?
// for one. It takes time linear in both for each star, never more.
func matchGlob(pattern, name string) bool {
	pattern, name = strings.ToLower(pattern), strings.ToLower(name)
	star, mark := -1, 0 // the last star, and where the name went on after it
	p, n := 0, 0
	for n < len(name) {
		_, size := utf8.DecodeRuneInString(name[n:])
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && pattern[p] == '?':
			p, n = p+1, n+size
		case p < len(pattern) && pattern[p] == name[n]:
			p, n = p+1, n+1
		case star >= 0:
			_, size := utf8.DecodeRuneInString(name[mark:])
			mark += size
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
