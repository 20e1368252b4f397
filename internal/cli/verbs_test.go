package cli

import (
	"slices"
	"testing"
)

// One verb alone is the same as that verb among all others.
func TestVerbAlone(t *testing.T) {
	all := Tree()
	for _, v := range new(app).verbs() {
		alone := new(app).command(v.name)
		if n := len(alone.Commands()); n != 1 {
			t.Errorf("%s is one of %d verbs", v.name, n)
		}
		one, _, err := alone.Find([]string{v.name})
		if err != nil || one.Name() != v.name {
			t.Errorf("%s is %v, %v", v.name, one.Name(), err)
			continue
		}
		same, _, err := all.Find([]string{v.name})
		if err != nil || one.UsageString() != same.UsageString() {
			t.Errorf("the usage of %s differs, %v", v.name, err)
		}
	}
}

func TestVerbOf(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"run", "--", "true"}, "run"},
		{[]string{"logs", "--help"}, "logs"},
		{[]string{"--state", "run"}, ""},
		{[]string{"help", "run"}, ""},
		{[]string{"config", "show"}, ""},
		{[]string{"man", "."}, ""},
		{[]string{"completion", "bash"}, ""},
		{[]string{"__complete", "run", ""}, ""},
		{[]string{"rnu"}, ""},
	} {
		if got := new(app).verbOf(tt.args); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
	for _, name := range onAll {
		if !slices.ContainsFunc(new(app).verbs(), func(v verb) bool { return v.name == name }) {
			t.Errorf("%s is no verb", name)
		}
	}
}
