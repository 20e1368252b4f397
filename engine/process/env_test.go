package process

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
)

func TestEnviron(t *testing.T) {
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
			"all, without secrets", policy(spool.EnvPolicy{Inherit: spool.InheritAll}), nil,
			[]string{"DUP=2", "EDITOR=vi", "HOME=/root", "Lang=C", "PATH=/bin", "lc_all=C"},
		},
		{
			"all, with secrets", policy(spool.EnvPolicy{Inherit: spool.InheritAll, IgnoreDefaultExcludes: true}), nil,
			[]string{"API_KEY=k", "DUP=2", "EDITOR=vi", "GITHUB_TOKEN=t", "HOME=/root", "Lang=C", "MONKEY=m", "PATH=/bin", "lc_all=C", "mySecretThing=s"},
		},
		{
			"core, whatever the case", policy(spool.EnvPolicy{Inherit: spool.InheritCore}), nil,
			[]string{"HOME=/root", "Lang=C", "PATH=/bin", "lc_all=C"},
		},
		{"none", policy(spool.EnvPolicy{Inherit: spool.InheritNone}), nil, []string{}},
		{
			"exclude", policy(spool.EnvPolicy{Inherit: spool.InheritAll, Exclude: []string{"ed*", "?UP", "l*"}}), nil,
			[]string{"HOME=/root", "PATH=/bin"},
		},
		{
			"set comes after the excludes", policy(spool.EnvPolicy{Inherit: spool.InheritNone, Exclude: []string{"A*"}, Set: map[string]string{"A_TOKEN": "1"}}), nil,
			[]string{"A_TOKEN=1"},
		},
		{
			"include only comes after set", policy(spool.EnvPolicy{Inherit: spool.InheritAll, Set: map[string]string{"A": "1", "B": "2"}, IncludeOnly: []string{"p*", "a"}}), nil,
			[]string{"A=1", "PATH=/bin"},
		},
		{
			"the overlay is not filtered",
			policy(spool.EnvPolicy{Inherit: spool.InheritCore, Exclude: []string{"*"}, IncludeOnly: []string{"X"}}), map[string]string{"MY_KEY": "1", "PATH": "/mine"},
			[]string{"MY_KEY=1", "PATH=/mine"},
		},
	}
	for _, tt := range tests {
		got, err := Environ(tt.policy, server, tt.env)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
	for _, bad := range []*spool.EnvPolicy{{Inherit: "bogus"}, {Set: map[string]string{"": "x"}}, {Set: map[string]string{"A=B": "x"}}} {
		if _, err := Environ(bad, server, nil); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestMatchGlob(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "abc", true}, {"a", "A", true}, {"A?C", "abc", true}, {"a?", "a", false},
		{"*key*", "MONKEY", true}, {"*key*", "KEY", true}, {"*key", "keys", false}, {"a*b*c", "aXbXbXc", true}, {"a*b*c", "aXcXb", false},
		{"**", "x", true}, {"?", "ü", true}, {"*?", "", false}, {"ÜBER*", "über_alles", true}, {"[a]", "a", false}, {"a.c", "abc", false},
		{"*a*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
	} {
		if got := matchGlob(tt.pattern, tt.name); got != tt.want {
			t.Errorf("matchGlob(%q, %q) is %v", tt.pattern, tt.name, got)
		}
	}
}

// The tail keeps exactly the last bytes and accounts for every other.
func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 40).Draw(t, "size")
		tl := tail{max: size}
		type unit struct {
			stream spool.Stream
			b      byte
		}
		var all []unit
		for range rapid.IntRange(0, 20).Draw(t, "writes") {
			stream := rapid.SampledFrom([]spool.Stream{spool.Stdout, spool.Stderr}).Draw(t, "stream")
			b := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "bytes")
			tl.write(stream, b)
			for _, c := range b {
				all = append(all, unit{stream, c})
			}
		}
		cut := max(0, len(all)-size)
		dropped := make(map[spool.Stream]int64)
		for _, u := range all[:cut] {
			dropped[u.stream]++
		}
		for _, stream := range []spool.Stream{spool.Stdout, spool.Stderr} {
			if tl.dropped[stream] != dropped[stream] {
				t.Fatalf("%d bytes of %s were dropped, want %d", tl.dropped[stream], stream, dropped[stream])
			}
		}
		var got []unit
		for {
			stream, b := tl.next(7)
			if b == nil {
				break
			}
			for _, c := range b {
				got = append(got, unit{stream, c})
			}
		}
		if d := cmp.Diff(all[cut:], got, cmp.AllowUnexported(unit{})); d != "" && len(got)+len(all[cut:]) > 0 {
			t.Fatalf("tail (-want +got):\n%s", d)
		}
	})
}
