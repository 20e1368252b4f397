package python_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/python"
)

// FuzzDisplay checks that a display that decodes encodes to the same display.
func FuzzDisplay(f *testing.F) {
	f.Add([]byte(`{"text/plain":"<Figure>","image/png":{"blob":"sha256:00","size_bytes":5123},"id":"plot","update":true,"metadata":{"image/png":{"width":5}}}`))
	f.Add([]byte(`{"clear":true,"wait":true,"execution_count":3,"other":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d, again python.Display
		if json.Unmarshal(b, &d) != nil {
			return
		}
		one, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(one, &again); err != nil {
			t.Fatal(err)
		}
		two, err := json.Marshal(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(one), string(two)); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzAllowsHost checks that a host is allowed by its own name or by a pattern
// that it ends with, and never by part of a name.
func FuzzAllowsHost(f *testing.F) {
	f.Add("example.org", "example.org")
	f.Add("*.example.org", "a.example.org.")
	f.Add("*.example.org", "badexample.org")
	f.Add("*.1", "127.0.0.1")
	f.Add("[::1]:80", "[::1]:80")
	f.Fuzz(func(t *testing.T, rule, host string) {
		c := python.SandboxConfig{Hosts: []string{rule}}
		if !c.AllowsHost(host) {
			return
		}
		name, allowed := strings.ToLower(strings.TrimSuffix(host, ".")), strings.ToLower(rule)
		if name != allowed && !(strings.HasPrefix(allowed, "*.") && strings.HasSuffix(name, allowed[1:])) {
			t.Errorf("%q allows %q", rule, host)
		}
	})
}
