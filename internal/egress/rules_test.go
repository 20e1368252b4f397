package egress

import (
	"net/netip"
	"strings"
	"testing"
)

func rules(t testing.TB, allow, deny []string) *Rules {
	t.Helper()
	r, err := ParseRules(allow, deny)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRules(t *testing.T) {
	r := rules(t, []string{"example.org", "*.Example.net.", "only.example.com:443", "192.0.2.7", "[2001:db8::7]:8080", "10.1.0.0/16", "*.deep.test"},
		[]string{"bad.example.net", "*.worse.example.net", "example.org:25", "10.1.2.0/24"})
	for _, test := range []struct {
		host, port string
		want       ruling
	}{
		{"example.org", "80", allowed},
		{"EXAMPLE.ORG.", "443", allowed},
		{"example.org", "25", denied},
		{"www.example.org", "80", unnamed},
		{"notexample.org", "80", unnamed},
		{"example.org.evil.test", "80", unnamed},
		{"example.net", "80", unnamed},
		{"a.example.net", "80", allowed},
		{"a.b.example.net", "80", allowed},
		{"evilexample.net", "80", unnamed},
		{"bad.example.net", "80", denied},
		{"a.worse.example.net", "80", denied},
		{"worse.example.net", "80", allowed},
		{"only.example.com", "443", allowed},
		{"only.example.com", "80", unnamed},
		{"192.0.2.7", "80", allowed},
		{"::ffff:192.0.2.7", "80", allowed},
		{"192.0.2.8", "80", unnamed},
		{"2001:db8::7", "8080", allowed},
		{"2001:db8:0::7", "8080", allowed},
		{"2001:db8::7", "80", unnamed},
		{"10.1.3.4", "80", allowed},
		{"10.1.2.4", "80", denied},
		{"10.2.0.1", "80", unnamed},
		{"1.deep.test", "80", allowed},
	} {
		target, err := newTarget(test.host, test.port)
		if err != nil {
			t.Errorf("%s:%s: %v", test.host, test.port, err)
			continue
		}
		if got := r.about(target); got != test.want {
			t.Errorf("%s: %v, want %v", target, got, test.want)
		}
	}
	if all := rules(t, []string{"*"}, nil); all.about(Target{Host: "anything.test", Port: 1}) != allowed {
		t.Error("* does not allow every host")
	}
	if !r.Names("192.0.2.7") || r.Names("localhost") || rules(t, []string{"*"}, nil).Names("localhost") || !rules(t, []string{"localhost:80"}, nil).Names("LOCALHOST") {
		t.Error("Names is wrong")
	}
}

func TestRefusesBadPatterns(t *testing.T) {
	for _, text := range []string{"", "*.", "a..b", "https://example.org", "example.org:0", "example.org:70000", "example.org:x", "exa mple.org",
		"*.*.org", "a*.org", "münchen.de", "10.0.0.0/40", "fe80::1%eth0", "example.org/path", strings.Repeat("a", maxName+1)} {
		if _, err := ParseRules([]string{text}, nil); err == nil {
			t.Errorf("%q is taken", text)
		} else if !strings.Contains(err.Error(), "host ") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ParseRules(nil, make([]string, maxRules+1)); err == nil || !strings.Contains(err.Error(), "at most 1000") {
		t.Errorf("too many rules: %v", err)
	}
	for _, host := range []string{"", "a b", "a/b", "ex\x00ample.org", "fe80::1%lo", strings.Repeat("a.", 200)} {
		if target, err := newTarget(host, "80"); err == nil {
			t.Errorf("the target %q is taken as %v", host, target)
		}
	}
	for _, port := range []string{"", "0", "65536", "-1", "http"} {
		if _, err := newTarget("example.org", port); err == nil {
			t.Errorf("the port %q is taken", port)
		}
	}
}

func TestGuard(t *testing.T) {
	g, err := newGuard(rules(t, []string{"*", "localhost", "10.1.0.0/16", "[fd00::1]:443"}, []string{"10.1.9.0/24", "198.41.0.4"}))
	if err != nil {
		t.Fatal(err)
	}
	g.own = append(g.own, netip.MustParseAddr("8.8.4.4"))
	for _, test := range []struct {
		host, addr string
		ok         bool
	}{
		{"example.org", "8.8.8.8", true},
		{"example.org", "2606:4700::1", true},
		{"example.org", "127.0.0.1", false},
		{"example.org", "127.9.9.9", false},
		{"example.org", "::1", false},
		{"example.org", "0.0.0.0", false},
		{"example.org", "::", false},
		{"example.org", "169.254.169.254", false},
		{"example.org", "fd00:ec2::254", false},
		{"example.org", "100.100.100.200", false},
		{"example.org", "168.63.129.16", false},
		{"example.org", "192.168.1.1", false},
		{"example.org", "172.31.0.1", false},
		{"example.org", "10.2.0.1", false},
		{"example.org", "10.1.0.1", true},
		{"example.org", "10.1.9.1", false},
		{"example.org", "198.41.0.4", false},
		{"example.org", "fe80::1", false},
		{"example.org", "64:ff9b::7f00:1", false},
		{"example.org", "2002:7f00:1::", false},
		{"example.org", "224.0.0.1", false},
		{"example.org", "255.255.255.255", false},
		{"example.org", "8.8.4.4", false}, // this machine
		{"localhost", "127.0.0.1", true},
		{"localhost", "10.2.0.1", false},
		{"127.0.0.1", "127.0.0.1", false}, // * does not name it
		{"fd00::1", "fd00::1", true},
	} {
		target, err := newTarget(test.host, "443")
		if err != nil {
			t.Fatal(err)
		}
		if err := g.check(target, netip.MustParseAddr(test.addr)); (err == nil) != test.ok {
			t.Errorf("%s at %s: %v", test.host, test.addr, err)
		}
	}
	if err := g.check(Target{Host: "x", Port: 80}, netip.MustParseAddr("fd00::1")); err == nil {
		t.Error("a rule with a port names the address for others")
	}
}
