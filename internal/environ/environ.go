// Package environ makes the environments of processes: what a policy inherits,
// what it drops, and what a spec sets. Environments are lists of "name=value",
// as in package os.
package environ

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

// coreNames are the variables that "core" selects.
var coreNames = []string{
	"PATH", "SHELL", "TMPDIR", "TEMP", "TMP", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "LOGNAME", "USER",
}

// secretPatterns match the names that a policy drops unless its
// IgnoreDefaultExcludes is set.
var secretPatterns = []string{"*key*", "*secret*", "*token*"}

// droppedNames never reach a process, not even from its own spec: they are
// credentials of the server and of the program that started it.
var droppedNames = []string{
	"CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN",
	"NODE_REPL_AUTH_TOKEN",
	"OPENAI_FEDERATION_RULE_ID",
	"OPENAI_IDENTITY_TOKEN_FILE",
	"OPENAI_WORKLOAD_IDENTITY_CONTEXT",
	"CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE",
}

// Make returns the environment of a run, sorted by name: the inherited
// variables that the policy lets through, overlaid with env. Without a policy
// it is env alone.
func Make(policy *spool.EnvPolicy, inherited []string, env map[string]string) ([]string, error) {
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
	case "all", "":
	case "core":
		keep = func(name string) bool {
			return slices.ContainsFunc(coreNames, func(core string) bool { return strings.EqualFold(core, name) })
		}
	case "none":
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
			if !Match(p.IncludeOnly, name) {
				delete(vars, name)
			}
		}
	}
	return nil
}

func dropMatching(vars map[string]string, patterns []string) {
	for name := range vars {
		if Match(patterns, name) {
			delete(vars, name)
		}
	}
}

// Match reports whether any of the patterns matches a variable's name, without
// regard to case. In a pattern * stands for any characters and ? for one.
func Match(patterns []string, name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(patterns, func(p string) bool { return matchGlob(strings.ToLower(p), name) })
}

// matchGlob matches one pattern, with regard to case. It takes time linear in both
// strings for each star, never more.
func matchGlob(pattern, name string) bool {
	star, mark := -1, 0 // the last star, and where in the name its match ends
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

// Filter returns the variables whose names keep accepts.
func Filter(env []string, keep func(name string) bool) []string {
	kept := make([]string, 0, len(env)) // nil could mean the environment of this process
	for _, v := range env {
		if name, _, _ := strings.Cut(v, "="); keep(name) {
			kept = append(kept, v)
		}
	}
	return kept
}

// Lookup returns the value of a variable, and whether it is set.
func Lookup(env []string, name string) (string, bool) {
	for _, v := range env {
		if len(v) > len(name) && v[len(name)] == '=' && v[:len(name)] == name {
			return v[len(name)+1:], true
		}
	}
	return "", false
}

// Get returns the value of a variable, empty if it is not set.
func Get(env []string, name string) string {
	value, _ := Lookup(env, name)
	return value
}

// Set returns the list with a variable set. The list itself does not change.
func Set(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		if !strings.HasPrefix(v, name+"=") {
			out = append(out, v)
		}
	}
	return append(out, name+"="+value)
}

// Default returns the list with those variables added that it does not set.
func Default(env []string, vars map[string]string) []string {
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if _, set := Lookup(env, name); !set {
			env = append(slices.Clip(env), name+"="+vars[name])
		}
	}
	return env
}

// Overlay returns the list with all the variables set.
func Overlay(env []string, vars map[string]string) []string {
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		env = Set(env, name, vars[name])
	}
	return env
}
