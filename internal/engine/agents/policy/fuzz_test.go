package policy

import (
	"errors"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

// FuzzPolicyFile checks that a policy is refused with [ErrInvalid], or passes
// its own check and means something with every key that it has.
func FuzzPolicyFile(f *testing.F) {
	f.Add("default = \"ask\"\ndeadline = \"10m\"\n[[rule]]\nverdict = \"allow\"\ncommands = [\"git status\", \"ls\"]\n")
	f.Add("[[rule]]\nverdict = \"deny\"\npaths = [\"/etc/**\"]\nkinds = [\"edit\"]\nmessage = \"no\"\n")
	f.Add("default = \"allow\"\n[[rules]]\nverdict = \"deny\"\n")
	f.Add("deadline = \"-1s\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("%v is not ErrInvalid", err)
			}
			return
		}
		if err := Check(p); err != nil || p.DeadlineMs < 0 {
			t.Fatalf("%q is taken as %+v: %v", text, p, err)
		}
		var raw map[string]any
		if _, err := toml.Decode(text, &raw); err != nil {
			t.Fatal(err)
		}
		for key := range raw {
			switch {
			case strings.EqualFold(key, "default"), strings.EqualFold(key, "deadline"), strings.EqualFold(key, "rule"):
			default:
				t.Fatalf("the key %q means nothing", key)
			}
		}
		if rules, ok := raw["rule"].([]map[string]any); ok && len(rules) != len(p.Rules) {
			t.Fatalf("%d rules of %d", len(p.Rules), len(rules))
		}
	})
}
