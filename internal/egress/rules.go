package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Rules say which hosts a run may connect to. A denial wins over an allowance.
type Rules struct {
	allow, deny []pattern
}

// ParseRules reads lists of patterns. A pattern is one of
//
//	example.org        that host
//	*.example.org      the hosts below it, not itself
//	*                  every host
//	192.0.2.7          that address, also written [2001:db8::7]
//	10.0.0.0/8         the addresses of that network
//
// with :443 behind it for one port. Only a pattern that is an address or a network
// names addresses that are not public; the pattern localhost names loopback ones.
func ParseRules(allow, deny []string) (*Rules, error) {
	r := &Rules{}
	for _, list := range []struct {
		texts []string
		to    *[]pattern
	}{{allow, &r.allow}, {deny, &r.deny}} {
		if len(list.texts) > maxRules {
			return nil, fmt.Errorf("%d hosts are named, and at most %d can be", len(list.texts), maxRules)
		}
		for _, text := range list.texts {
			p, err := parsePattern(text)
			if err != nil {
				return nil, err
			}
			*list.to = append(*list.to, p)
		}
	}
	return r, nil
}

// pattern is a set of hosts. The zero value of each field restricts nothing.
type pattern struct {
	all    bool         // every host
	suffix string       // with the dot, such as ".example.org"
	name   string       // of one host
	prefix netip.Prefix // of addresses
	port   uint16       // zero for every port
}

func parsePattern(text string) (pattern, error) {
	bad := func(why string) (pattern, error) {
		return pattern{}, fmt.Errorf("host %q: %s; write example.org, *.example.org, example.org:443, 192.0.2.7 or 10.0.0.0/8", text, why)
	}
	if strings.Contains(text, "://") {
		return bad("it is a URL, not a host")
	}
	var p pattern
	host := text
	if h, port, ok := cutPort(text); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return bad("the port is not between 1 and 65535")
		}
		host, p.port = h, uint16(n)
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.Contains(host, "/") {
		prefix, err := netip.ParsePrefix(host)
		if err != nil {
			return bad("not a network")
		}
		p.prefix = prefix.Masked()
		return p, nil
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return bad("an address with a zone cannot be named")
		}
		addr = addr.Unmap()
		p.prefix = netip.PrefixFrom(addr, addr.BitLen())
		return p, nil
	}
	if host == "*" {
		p.all = true
		return p, nil
	}
	name, below := strings.CutPrefix(host, "*.")
	name, why := cleanName(name)
	if why != "" {
		return bad(why)
	}
	if below {
		p.suffix = "." + name
	} else {
		p.name = name
	}
	return p, nil
}

// cutPort splits a port off a host. The last colon of an address in brackets, or
// of a text with one colon, comes before a port.
func cutPort(text string) (host, port string, ok bool) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 || !strings.HasSuffix(text[:i], "]") && strings.Contains(text[:i], ":") {
		return text, "", false
	}
	return text[:i], text[i+1:], true
}

// cleanName returns the form of a name that names are compared in, or says why it is
// none.
func cleanName(name string) (clean, why string) {
	clean = strings.ToLower(strings.TrimSuffix(name, "."))
	switch {
	case clean == "":
		return "", "the name is empty"
	case len(clean) > maxName:
		return "", fmt.Sprintf("the name is longer than %d bytes", maxName)
	}
	for label := range strings.SplitSeq(clean, ".") {
		if label == "" {
			return "", "the name has an empty part"
		}
		for _, c := range []byte(label) {
			switch {
			case c >= 0x80:
				return "", "a name with letters beyond ASCII is written in its ASCII form (xn--…)"
			case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '_':
			default:
				return "", fmt.Sprintf("%q is not part of a name", c)
			}
		}
	}
	return clean, ""
}

// Target is a host and a port that a run wants to connect to.
type Target struct {
	Host string `json:"host"` // a name in lower case, or an address
	Port uint16 `json:"port"`

	addr netip.Addr // of a host that is an address
}

// String returns host:port.
func (t Target) String() string { return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) }

// Addr returns the address of a host that is one, and else an invalid address.
func (t Target) Addr() netip.Addr { return t.addr }

// newTarget checks the host and the port of a request.
func newTarget(host, port string) (Target, error) {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return Target{}, fmt.Errorf("the port %.20q is not between 1 and 65535", port)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" {
			return Target{}, fmt.Errorf("the address %.80q has a zone", host)
		}
		addr = addr.Unmap()
		return Target{addr.String(), uint16(n), addr}, nil
	}
	name, why := cleanName(host)
	if why != "" {
		return Target{}, fmt.Errorf("the host %.80q: %s", host, why)
	}
	return Target{Host: name, Port: uint16(n)}, nil
}

func (p *pattern) matches(t Target) bool {
	switch {
	case p.port != 0 && p.port != t.Port:
		return false
	case p.all:
		return true
	case p.prefix.IsValid():
		return t.addr.IsValid() && p.prefix.Contains(t.addr)
	case t.addr.IsValid():
		return false
	case p.suffix != "":
		return strings.HasSuffix(t.Host, p.suffix)
	}
	return t.Host == p.name
}

// ruling is what rules say about a target.
type ruling int

const (
	unnamed ruling = iota // nothing
	allowed
	denied
)

// about returns what the rules say about a target.
func (r *Rules) about(t Target) ruling {
	has := func(p pattern) bool { return p.matches(t) }
	switch {
	case slices.ContainsFunc(r.deny, has):
		return denied
	case slices.ContainsFunc(r.allow, has):
		return allowed
	}
	return unnamed
}

// Names reports whether the rules allow an address of the machine itself by the
// name localhost or by an address.
func (r *Rules) Names(host string) bool {
	t, err := newTarget(host, "1")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(r.allow, func(p pattern) bool {
		p.port = 0
		return !p.all && p.matches(t)
	})
}
