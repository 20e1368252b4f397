package access

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"testing"
)

// TestGate tries hosts, origins, sites and methods with each other, on three
// listeners.
func TestGate(t *testing.T) {
	type listener struct {
		at    string
		tls   bool
		hosts []string // that name it
	}
	listeners := []listener{
		{"127.0.0.1:7766", false, []string{"127.0.0.1:7766", "localhost:7766", "LOCALHOST:7766", "spool.localhost:7766", "[::1]:7766", "127.0.0.2:7766", "spool.example.com", "spool.example.com:8443"}},
		{"192.0.2.7:7766", false, []string{"192.0.2.7:7766", "spool.example.com", "spool.example.com:8443"}},
		{"[2001:db8::7]:443", true, []string{"[2001:db8::7]", "[2001:db8::7]:443", "spool.example.com", "spool.example.com:8443"}},
	}
	hosts := []string{
		"127.0.0.1:7766", "localhost:7766", "LOCALHOST:7766", "spool.localhost:7766", "[::1]:7766", "127.0.0.2:7766", "192.0.2.7:7766",
		"[2001:db8::7]", "[2001:db8::7]:443", "spool.example.com", "spool.example.com:8443",
		"evil.test:7766", "evil.test", "0.0.0.0:7766", "[::]:7766", "127.0.0.1", "127.0.0.1:80", "localhost", "localhost.evil.test:7766", "192.0.2.8:7766", "",
	}
	sites := []string{"", "same-origin", "none", "same-site", "cross-site", "odd"}
	g := &Gate{Hosts: []string{"spool.example.com"}, Origins: []string{"https://app.example.com"}}
	rows := 0
	for _, l := range listeners {
		addr, err := net.ResolveTCPAddr("tcp", l.at)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			scheme := "http://"
			if l.tls {
				scheme = "https://"
			}
			own := scheme + host
			origins := []string{"", own, "https://app.example.com", "null", "http://evil.test", "https://app.example.com.evil.test", "http://localhost:7767", "https://spool.example.com.evil.test"}
			for _, origin := range origins {
				for _, site := range sites {
					for _, method := range []string{"GET", "POST"} {
						rows++
						r := &http.Request{Method: method, Host: host, Header: http.Header{}}
						if l.tls {
							r.TLS = new(tls.ConnectionState)
						}
						r = r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(addr)))
						if origin != "" {
							r.Header.Set("Origin", origin)
						}
						if site != "" {
							r.Header.Set("Sec-Fetch-Site", site)
						}
						allowed := origin == "https://app.example.com"
						want := ""
						switch {
						case !slices.Contains(l.hosts, host):
							want = "bad_host"
						case origin != "" && origin != own && !allowed:
							want = "bad_origin"
						case !allowed && (site == "same-site" || site == "cross-site" || site == "odd"):
							want = "cross_site"
						}
						got := ""
						cors, err := g.Check(r)
						var refused *GateError
						if errors.As(err, &refused) {
							got = refused.Code
						}
						if got != want || want == "" && (cors != "") != allowed {
							t.Errorf("at %s: Host %q, Origin %q, Sec-Fetch-Site %q, %s: %q for %q, want %q", l.at, host, origin, site, method, got, cors, want)
						}
					}
				}
			}
		}
	}
	if rows < 400 {
		t.Errorf("only %d rows", rows)
	}
}

// TestGateOfOtherConnections checks a proxy that ends TLS, a unix socket, and a
// request that came over no connection.
func TestGateOfOtherConnections(t *testing.T) {
	g := &Gate{Hosts: []string{"spool.example.com"}}
	on := func(a net.Addr) *http.Request {
		r := &http.Request{Host: "spool.example.com", Header: http.Header{"Origin": {"https://spool.example.com"}}}
		return r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, a))
	}
	if _, err := g.Check(on(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7766})); err != nil {
		t.Errorf("behind a proxy: %v", err)
	}
	r := on(&net.UnixAddr{Name: "/socket", Net: "unix"})
	r.Host = "anything"
	r.Header.Del("Origin")
	if _, err := g.Check(r); err != nil {
		t.Errorf("on a unix socket: %v", err)
	}
	r.Header.Set("Origin", "http://evil.test")
	if _, err := g.Check(r); err == nil {
		t.Error("a page on a unix socket passes")
	}
	if _, err := g.Check(&http.Request{Host: "localhost", Header: http.Header{}}); err == nil {
		t.Error("a request over no connection passes")
	}
}

func TestCheckOrigin(t *testing.T) {
	for text, ok := range map[string]bool{
		"https://example.com": true, "http://localhost:5173": true, "https://example.com/": false, "example.com": false, "*": false,
		"null": false, "https://Example.com": false, "file:///x": false, "https://user@example.com": false,
	} {
		if err := CheckOrigin(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
