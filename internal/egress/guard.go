package egress

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// reserved are the networks that no name leads to, unless the rules name an
// address: a name that somebody else controls may resolve to any of them.
var reserved = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("127.0.0.0/8"), "a loopback address"},
	{netip.MustParsePrefix("::1/128"), "a loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address, where clouds keep credentials"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},
	{netip.MustParsePrefix("172.16.0.0/12"), "a private address"},
	{netip.MustParsePrefix("192.168.0.0/16"), "a private address"},
	{netip.MustParsePrefix("fc00::/7"), "a private address"},
	{netip.MustParsePrefix("fec0::/10"), "a private address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "an address of a provider's network"},
	{netip.MustParsePrefix("168.63.129.16/32"), "an address where a cloud keeps credentials"},
	{netip.MustParsePrefix("0.0.0.0/8"), "an address of this machine"},
	{netip.MustParsePrefix("::/96"), "an address of this machine"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a reserved address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a reserved address"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a reserved address"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a reserved address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},
	{netip.MustParsePrefix("2001:db8::/32"), "a reserved address"},
	{netip.MustParsePrefix("100::/64"), "a reserved address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
	{netip.MustParsePrefix("64:ff9b::/32"), "an IPv4 address within an IPv6 one"},
	{netip.MustParsePrefix("2001::/32"), "an IPv4 address within an IPv6 one"},
	{netip.MustParsePrefix("2002::/16"), "an IPv4 address within an IPv6 one"},
}

// guard refuses addresses that a target may resolve to.
type guard struct {
	rules *Rules
	own   []netip.Addr // of this machine's interfaces
}

// newGuard returns a guard that also knows the addresses of this machine.
func newGuard(r *Rules) (*guard, error) {
	g := &guard{rules: r}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				g.own = append(g.own, addr.Unmap())
			}
		}
	}
	return g, nil
}

// Public reports whether an address is neither reserved, as those of private networks
// are, nor one of this machine.
func Public(addr netip.Addr) (bool, error) {
	g, err := newGuard(&Rules{})
	if err != nil {
		return false, err
	}
	return g.check(Target{}, addr.Unmap().WithZone("")) == nil, nil
}

// check returns why a target may not be reached at an address, or nil.
func (g *guard) check(t Target, addr netip.Addr) error {
	at := Target{addr.String(), t.Port, addr}
	for _, p := range g.rules.deny {
		if p.prefix.IsValid() && p.matches(at) {
			return fmt.Errorf("%s is denied", addr)
		}
	}
	what := ""
	for _, n := range reserved {
		if n.prefix.Contains(addr) {
			what = n.what
			break
		}
	}
	if what == "" && slices.Contains(g.own, addr) {
		what = "an address of this machine"
	}
	if what == "" {
		return nil
	}
	for _, p := range g.rules.allow {
		if p.prefix.IsValid() && p.matches(at) || p.name == "localhost" && addr.IsLoopback() && p.matches(t) {
			return nil
		}
	}
	if t.addr.IsValid() {
		return fmt.Errorf("it is %s, which no rule names", what)
	}
	return fmt.Errorf("its address %s is %s, which no rule names", addr, what)
}
