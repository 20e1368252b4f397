package sandbox

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// FuzzConfig checks that a configuration is complete once it is accepted.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"backend":"pyodide","mounts":[{"host":"/","guest":"/x"}],"limits":{"wall_ms":-5}}`))
	f.Add([]byte(`{"offer":["fs.*"],"files":[{"path":"a","base64":"AA=="}]}`))
	f.Add([]byte(`{"limits":{"wall_ms":9223372036854775807,"ask_ms":9223372036854775807,"idle_ms":9223372036854775807}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(&spool.Spec{Config: b})
		if err != nil {
			return
		}
		l := &c.Limits
		if l.MemoryBytes <= 0 || l.OutputBytes <= 0 || l.AskMs <= 0 || l.OpenFiles <= 0 {
			t.Errorf("%s has the limits %+v", b, c.Limits)
		}
		if d := wallLimit(l, 0); d < 0 || l.WallMs > 0 && d < time.Millisecond {
			t.Errorf("a wall limit of %d ms is %v", l.WallMs, d)
		}
		for _, m := range c.Mounts {
			if m.Mode == "" || !strings.HasPrefix(m.Guest, "/") {
				t.Errorf("%s has the mount %+v", b, m)
			}
		}
		_ = denies(c, python.AskHTTP, b)
	})
}

// FuzzAsk checks that a network ask that is let through names an allowed host,
// however the payload is read.
func FuzzAsk(f *testing.F) {
	f.Add(python.AskHTTP, []byte(`{"url":"http://example.org/x","method":"GET","headers":{"a":"b"},"body_base64":"aGk="}`))
	f.Add(python.AskHTTP, []byte(`{"url":"http://example.org@evil.org/","url":"http://example.org/"}`))
	f.Add(python.AskHTTP, []byte(`{"URL":"http://evil.org/","url":"http://a.example.net:8080/"}`))
	f.Add(python.AskDNS, []byte(`{"hostname":"A.EXAMPLE.NET.","family":4}`))
	f.Add("fs.read", []byte(`{}`))
	c := &python.SandboxConfig{Hosts: []string{"example.org", "*.example.net"}, Offer: []string{python.AskHTTP, python.AskDNS}}
	f.Fuzz(func(t *testing.T, kind string, payload []byte) {
		if denies(c, kind, payload) != "" {
			return
		}
		var loose struct {
			URL      string `json:"url"`
			Hostname string `json:"hostname"`
		}
		if err := json.Unmarshal(payload, &loose); err != nil {
			t.Fatalf("%s was let through: %v", payload, err)
		}
		host := loose.Hostname
		if kind == python.AskHTTP {
			u, err := url.Parse(loose.URL)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" {
				t.Fatalf("%s was let through: %v", payload, err)
			}
			host = u.Hostname()
		}
		name := strings.ToLower(strings.TrimSuffix(host, "."))
		if name != "example.org" && !strings.HasSuffix(name, ".example.net") {
			t.Fatalf("%s %s was let through to %q", kind, payload, host)
		}
	})
}
