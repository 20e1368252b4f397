package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// maxForwarded is how many addresses of the header X-Forwarded-For are looked at.
const maxForwarded = 32

// Proxies are the networks of the proxies in front of a server. What they say of their
// clients is believed, and nobody else is.
type Proxies []netip.Prefix

// forwardedKey is the key of what a proxy said in the context of a request.
type forwardedKey struct{}

// forwarded is what a proxy said of its client.
type forwarded struct{ secure bool }

// Has reports whether an address is that of a proxy.
func (p Proxies) Has(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	for _, prefix := range p {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// Admits reports whether a request came from a proxy, or from this machine. Other
// connections are not encrypted.
func (p Proxies) Admits(r *http.Request) bool {
	if len(p) == 0 {
		return true
	}
	addr, ok := remoteAddr(r)
	return !ok || addr.Unmap().IsLoopback() || p.Has(addr)
}

func remoteAddr(r *http.Request) (netip.Addr, bool) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false // a unix socket
	}
	addr, err := netip.ParseAddr(host)
	return addr, err == nil
}

// Resolve returns the request as the client of a proxy sent it: from its address, to
// the host that it named, with TLS or without. A request that did not come from a
// proxy stays as it is.
func (p Proxies) Resolve(r *http.Request) *http.Request {
	addr, ok := remoteAddr(r)
	if !ok || !p.Has(addr) {
		return r
	}
	said := forwarded{secure: strings.EqualFold(last(r.Header.Values("X-Forwarded-Proto")), "https")}
	resolved := r.WithContext(context.WithValue(r.Context(), forwardedKey{}, said))
	if host := last(r.Header.Values("X-Forwarded-Host")); host != "" {
		resolved.Host = host
	}
	if client, ok := p.client(r.Header.Values("X-Forwarded-For")); ok {
		resolved.RemoteAddr = net.JoinHostPort(client.String(), "0")
	}
	return resolved
}

// client returns the last address that is not one of a proxy: those before it are what
// the client itself said.
func (p Proxies) client(values []string) (netip.Addr, bool) {
	all := strings.Split(strings.Join(values, ","), ",")
	var client netip.Addr
	for i := len(all) - 1; i >= 0 && i >= len(all)-maxForwarded; i-- {
		text := strings.TrimSpace(all[i])
		addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
		if err != nil {
			port, portErr := netip.ParseAddrPort(text)
			if portErr != nil {
				break
			}
			addr = port.Addr()
		}
		client = addr.Unmap().WithZone("")
		if !p.Has(client) {
			break
		}
	}
	return client, client.IsValid()
}

// last returns the last element of a header that is a list.
func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	text := values[len(values)-1]
	return strings.TrimSpace(text[strings.LastIndexByte(text, ',')+1:])
}

// Secure reports whether the client of a request uses TLS, with the server or with a
// proxy.
func Secure(r *http.Request) bool {
	said, _ := r.Context().Value(forwardedKey{}).(forwarded)
	return r.TLS != nil || said.secure
}
