package access

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// TestProxies checks what is believed of whom: of a proxy everything, of others
// nothing, and of a client behind a proxy only what the proxy saw.
func TestProxies(t *testing.T) {
	p := Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/64")}
	for _, tt := range []struct {
		name, peer       string
		from, proto, to  string // X-Forwarded-For, -Proto, -Host
		source, host     string
		secure, admitted bool
	}{
		{"proxy", "10.1.2.3:5", "192.0.2.9", "https", "spool.example.com", "192.0.2.9", "spool.example.com", true, true},
		{"proxy, plain", "10.1.2.3:5", "192.0.2.9", "http", "", "192.0.2.9", "direct.example.com", false, true},
		{"proxy that says nothing", "10.1.2.3:5", "", "", "", "10.1.2.3", "direct.example.com", false, true},
		{"proxy of IPv6", "[2001:db8::1]:5", "2001:db8:1::9", "https", "", "2001:db8:1::/64", "direct.example.com", true, true},
		{"proxy as IPv4 in IPv6", "[::ffff:10.1.2.3]:5", "192.0.2.9", "https", "", "192.0.2.9", "direct.example.com", true, true},
		{"two proxies", "10.1.2.3:5", "192.0.2.9, 10.9.9.9", "https", "", "192.0.2.9", "direct.example.com", true, true},
		{"client that invents", "10.1.2.3:5", "127.0.0.1, 192.0.2.9", "http, https", "evil.test, spool.example.com", "192.0.2.9", "spool.example.com", true, true},
		{"client that invents the scheme", "10.1.2.3:5", "192.0.2.9", "https, http", "", "192.0.2.9", "direct.example.com", false, true},
		{"with a port", "10.1.2.3:5", "192.0.2.9:4711", "", "", "192.0.2.9", "direct.example.com", false, true},
		{"nonsense", "10.1.2.3:5", "unknown", "ftp", "", "10.1.2.3", "direct.example.com", false, true},
		{"somebody else", "192.0.2.1:5", "127.0.0.1", "https", "spool.example.com", "192.0.2.1", "direct.example.com", false, false},
		{"this machine", "127.0.0.1:5", "192.0.2.9", "https", "spool.example.com", "127.0.0.1", "direct.example.com", false, true},
		{"unix socket", "@", "192.0.2.9", "https", "spool.example.com", "unix", "direct.example.com", false, true},
	} {
		r := &http.Request{Host: "direct.example.com", RemoteAddr: tt.peer, Header: http.Header{}}
		for name, value := range map[string]string{"X-Forwarded-For": tt.from, "X-Forwarded-Proto": tt.proto, "X-Forwarded-Host": tt.to} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if got := p.Admits(r); got != tt.admitted {
			t.Errorf("%s: admitted %t", tt.name, got)
		}
		got := p.Resolve(r)
		if Source(got) != tt.source || got.Host != tt.host || Secure(got) != tt.secure {
			t.Errorf("%s: from %s to %s, secure %t", tt.name, Source(got), got.Host, Secure(got))
		}
		if name := CookieName(got); strings.HasPrefix(name, "__Host-") != tt.secure {
			t.Errorf("%s: the cookie is %s", tt.name, name)
		}
	}
	long := &http.Request{RemoteAddr: "10.0.0.1:1", Header: http.Header{"X-Forwarded-For": {strings.Repeat("10.0.0.2, ", 10*maxForwarded) + "10.0.0.3"}}}
	if got := Source(p.Resolve(long)); got != "10.0.0.2" {
		t.Errorf("a long list: %s", got)
	}
	if !(Proxies{}).Admits(&http.Request{RemoteAddr: "192.0.2.1:5"}) {
		t.Error("without proxies a client is refused")
	}
}

// TestGateBehindAProxy checks hosts and origins of requests that a proxy forwards.
func TestGateBehindAProxy(t *testing.T) {
	p := Proxies{netip.MustParsePrefix("10.0.0.0/8")}
	g := &Gate{Hosts: []string{"spool.example.com"}}
	for _, tt := range []struct{ host, proto, origin, want string }{
		{"spool.example.com", "https", "https://spool.example.com", ""},
		{"spool.example.com", "https", "", ""},
		{"spool.example.com:8443", "https", "https://spool.example.com:8443", ""},
		{"spool.example.com", "https", "http://spool.example.com", "bad_origin"},
		{"spool.example.com", "http", "http://spool.example.com", ""},
		{"spool.example.com", "https", "https://evil.test", "bad_origin"},
		{"evil.test", "https", "https://evil.test", "bad_host"},
		{"127.0.0.1:7766", "https", "", "bad_host"},
	} {
		r := &http.Request{Host: "10.0.0.5:7766", RemoteAddr: "10.0.0.1:5", Header: http.Header{"X-Forwarded-Host": {tt.host}, "X-Forwarded-Proto": {tt.proto}}}
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		at := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 7766}
		_, err := g.Check(p.Resolve(r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(at)))))
		got := ""
		var refused *GateError
		if errors.As(err, &refused) {
			got = refused.Code
		}
		if got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
