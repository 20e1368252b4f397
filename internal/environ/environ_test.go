package environ

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

func TestMake(t *testing.T) {
	server := []string{
		"PATH=/bin", "HOME=/root", "Lang=C", "lc_all=C", "EDITOR=vi", "API_KEY=k", "mySecretThing=s", "GITHUB_TOKEN=t",
		"MONKEY=m", "=bad", "bad", "DUP=1", "DUP=2", "OPENAI_FEDERATION_RULE_ID=x",
	}
	policy := func(p spool.EnvPolicy) *spool.EnvPolicy { return &p }
	tests := []struct {
		name   string
		policy *spool.EnvPolicy
		env    map[string]string
		want   []string
	}{
		{"no policy is the spec alone", nil, map[string]string{"B": "2", "A": "1", "API_KEY": "mine"}, []string{"A=1", "API_KEY=mine", "B=2"}},
		{"nothing at all", nil, nil, []string{}},
		{
			"own credentials are dropped from the spec", nil,
			map[string]string{
				"A": "1", "CODEX_EXEC_SERVER_NOISE_AUTH_TOKEN": "x", "NODE_REPL_AUTH_TOKEN": "x", "OPENAI_FEDERATION_RULE_ID": "x",
				"OPENAI_IDENTITY_TOKEN_FILE": "x", "OPENAI_WORKLOAD_IDENTITY_CONTEXT": "x", "CODEX_EXEC_SERVER_EXIT_ON_STDIN_CLOSE": "x",
			},
			[]string{"A=1"},
		},
		{
			"all, without secrets", policy(spool.EnvPolicy{Inherit: "all"}), nil,
			[]string{"DUP=2", "EDITOR=vi", "HOME=/root", "Lang=C", "PATH=/bin", "lc_all=C"},
		},
		{
			"all, with secrets", policy(spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}), nil,
			[]string{"API_KEY=k", "DUP=2", "EDITOR=vi", "GITHUB_TOKEN=t", "HOME=/root", "Lang=C", "MONKEY=m", "PATH=/bin", "lc_all=C", "mySecretThing=s"},
		},
		{
			"core, whatever the case", policy(spool.EnvPolicy{Inherit: "core"}), nil,
			[]string{"HOME=/root", "Lang=C", "PATH=/bin", "lc_all=C"},
		},
		{"none", policy(spool.EnvPolicy{Inherit: "none"}), nil, []string{}},
		{
			"exclude", policy(spool.EnvPolicy{Inherit: "all", Exclude: []string{"ed*", "?UP", "l*"}}), nil,
			[]string{"HOME=/root", "PATH=/bin"},
		},
		{
			"set comes after the excludes", policy(spool.EnvPolicy{Inherit: "none", Exclude: []string{"A*"}, Set: map[string]string{"A_TOKEN": "1"}}), nil,
			[]string{"A_TOKEN=1"},
		},
		{
			"include only comes after set", policy(spool.EnvPolicy{Inherit: "all", Set: map[string]string{"A": "1", "B": "2"}, IncludeOnly: []string{"p*", "a"}}), nil,
			[]string{"A=1", "PATH=/bin"},
		},
		{
			"the overlay is not filtered",
			policy(spool.EnvPolicy{Inherit: "core", Exclude: []string{"*"}, IncludeOnly: []string{"X"}}), map[string]string{"MY_KEY": "1", "PATH": "/mine"},
			[]string{"MY_KEY=1", "PATH=/mine"},
		},
	}
	for _, tt := range tests {
		got, err := Make(tt.policy, server, tt.env)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	for _, bad := range []*spool.EnvPolicy{{Inherit: "bogus"}, {Set: map[string]string{"": "x"}}, {Set: map[string]string{"A=B": "x"}}} {
		if _, err := Make(bad, server, nil); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a", "A", true}, {"A?C", "abc", true}, {"a?", "a", false},
		{"*key*", "MONKEY", true}, {"*key*", "KEY", true}, {"*key", "keys", false}, {"a*b*c", "aXbXbXc", true}, {"a*b*c", "aXcXb", false},
		{"**", "x", true}, {"?", "ü", true}, {"*?", "", false}, {"ÜBER*", "über_alles", true}, {"[a]", "a", false}, {"a.c", "abc", false},
		{"*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	} {
		if got := Match([]string{tt.pattern}, tt.name); got != tt.want {
			t.Errorf("Match(%q, %q) is %v", tt.pattern, tt.name, got)
		}
	}
}

func TestLists(t *testing.T) {
	env := []string{"A=1", "AB=2", "EMPTY=", "C=x=y"}
	if v, ok := Lookup(env, "A"); v != "1" || !ok {
		t.Errorf("A is %q, %v", v, ok)
	}
	if v, ok := Lookup(env, "EMPTY"); v != "" || !ok {
		t.Errorf("EMPTY is %q, %v", v, ok)
	}
	if v, ok := Lookup(env, "B"); v != "" || ok {
		t.Errorf("B is %q, %v", v, ok)
	}
	if v := Get(env, "C"); v != "x=y" {
		t.Errorf("C is %q", v)
	}
	for _, tt := range []struct {
		name string
		got  []string
		want []string
	}{
		{"set", Set(env, "A", "9"), []string{"AB=2", "EMPTY=", "C=x=y", "A=9"}},
		{"default", Default(env, map[string]string{"EMPTY": "e", "Z": "z", "D": "d"}), []string{"A=1", "AB=2", "EMPTY=", "C=x=y", "D=d", "Z=z"}},
		{"overlay", Overlay(env, map[string]string{"EMPTY": "e", "A": "0"}), []string{"AB=2", "C=x=y", "A=0", "EMPTY=e"}},
		{"filter", Filter(env, func(name string) bool { return len(name) == 1 }), []string{"A=1", "C=x=y"}},
		{"filter all", Filter(env, func(string) bool { return false }), []string{}},
		{"unchanged", env, []string{"A=1", "AB=2", "EMPTY=", "C=x=y"}},
	} {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
