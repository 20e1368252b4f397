package execserver

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool/internal/wire/rpc"
)

func FuzzSandbox(f *testing.F) {
	f.Add([]byte(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`))
	f.Add([]byte(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[{"path":{"type":"glob_pattern","pattern":"**/[a-z]{b,c}*"},"access":"deny"}]},"network":"enabled"},"cwd":"file:///tmp","windowsSandboxLevel":"disabled"}`))
	f.Add([]byte(`{"permissions":{"type":"external","network":"enabled"},"windowsSandboxLevel":"elevated"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var e *rpc.Error
		if _, err := treeFor(raw, true); err != nil && !errors.As(err, &e) {
			t.Fatalf("%v is not a wire error", err)
		}
		if err := checkProcess(raw, "/"); err != nil && !errors.As(err, &e) {
			t.Fatalf("%v is not a wire error", err)
		}
	})
}

func TestGlobMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, path string
		want          bool
	}{
		{"/srv/*.env", "/srv/a.env", true},
		{"/srv/*.env", "/srv/deep/a.env", true}, // a pattern of one element matches at any depth
		{"/srv/*.env", "/srv/a.env/inside", true},
		{"/srv/*.env", "/srv/env", false},
		{"/srv/*.env", "/srv", false},
		{"/srv/*.env", "/other/a.env", false},
		{"/srv/*/a", "/srv/x/a", true},
		{"/srv/*/a", "/srv/x/y/a", false},
		{"/srv/**/a", "/srv/a", true},
		{"/srv/**/a", "/srv/x/y/a", true},
		{"/srv/**", "/srv/x/y", true},
		{"/srv/?.txt", "/srv/a.txt", true},
		{"/srv/?.txt", "/srv/ab.txt", false},
		{"/srv/?.txt", "/srv/é.txt", true},
		{"/srv/[a-c]x", "/srv/bx", true},
		{"/srv/[!a-c]x", "/srv/bx", false},
		{"/srv/[!a-c]x", "/srv/dx", true},
		{"/srv/[", "/srv/[", true},
		{"/srv/*.{pem,key}", "/srv/a.key", true},
		{"/srv/*.{pem,key}", "/srv/a.crt", false},
		{`/srv/*\*`, "/srv/a*", true},
		{`/srv/*\*`, "/srv/ab", false},
		{"/srv/*.a+b", "/srv/x.a+b", true},
		{"/srv/*}", "/srv/x}", true},
	} {
		g, err := newGlob(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
		} else if got := g.matches(tt.path); got != tt.want {
			t.Errorf("%s matches %s: %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
	}
	for _, pattern := range []string{"/srv/x", "/*.env", "/"} {
		if _, err := newGlob(pattern); err == nil {
			t.Errorf("%s is accepted", pattern)
		}
	}
}

// restrict returns a sandbox object with entries.
func restrict(entries string) json.RawMessage {
	return json.RawMessage(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[` + entries +
		`]},"network":"restricted"},"windowsSandboxLevel":"disabled"}`)
}

// allow returns an entry for a path.
func allow(path, access string) string {
	return `{"path":{"type":"path","path":"file://` + path + `"},"access":"` + access + `"}`
}
