package access

import (
	"encoding/json"
	"testing"
)

// FuzzScope checks that a scope means the same once it is written out, and that
// no scope but admin includes admin.
func FuzzScope(f *testing.F) {
	for _, s := range []string{"runs:read", "runs:start:kernel", "files:/srv/../etc", "files:x", "admin", "runs:start:", "Admin", "asks:answer"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseScope(text)
		if err != nil {
			return
		}
		if again, err := ParseScope(string(s)); err != nil || again != s {
			t.Fatalf("%q is %q, and that is %q: %v", text, s, again, err)
		}
		list, err := json.Marshal(Scopes{s})
		if err != nil {
			t.Fatal(err)
		}
		var back Scopes
		if err := json.Unmarshal(list, &back); err == nil && back.Has(Admin) != (text == string(Admin)) {
			t.Fatalf("%q gives %v", text, back)
		}
	})
}
