package access

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Gate refuses the requests that a page of another site has a browser send, on every
// method: a listener on loopback protects nobody from these. It knows them by the
// headers Host, Origin and Sec-Fetch-Site. The zero value is ready to use.
type Gate struct {
	// Hosts are the names of the server, beside the addresses on which it
	// listens and localhost. A page can have a name of its own resolve to any
	// address, so that other names are refused.
	Hosts []string
	// Origins are those of pages, such as https://example.com, that may send
	// requests with a token.
	Origins []string
}

// GateError is why a request does not pass. Its Code is bad_host, bad_origin or
// cross_site.
type GateError struct{ Code, Text string }

func (e *GateError) Error() string { return e.Text }

// Check returns a [*GateError] for a request that must not pass. The origin is set
// if a page of another origin sent the request and may.
func (g *Gate) Check(r *http.Request) (origin string, err error) {
	if err := g.CheckHost(r); err != nil {
		return "", err
	}
	if values := r.Header["Origin"]; len(values) > 0 {
		origin, err = g.checkOrigin(r, values)
		if err != nil {
			return "", err
		}
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" && origin == "" {
			return "", &GateError{"cross_site", "a page of another site sent the request"}
		}
	}
	return origin, nil
}

// CheckHost returns a [*GateError] for a request whose Host header does not name this
// server. It is all that is checked of a link of another site to a static page; see
// [IsLink].
func (g *Gate) CheckHost(r *http.Request) error {
	if !g.names(r) {
		return &GateError{"bad_host", fmt.Sprintf("%.200q is not a name of this server", r.Host)}
	}
	return nil
}

// IsLink reports whether somebody followed a link, or typed an address: the answer
// becomes a page of its own.
func IsLink(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Origin") == "" &&
		r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}

// checkOrigin returns the origin of a page that is not ours and may send requests.
func (g *Gate) checkOrigin(r *http.Request, values []string) (string, error) {
	origin := values[0]
	scheme := "http"
	if Secure(r) {
		scheme = "https"
	}
	_, told := r.Context().Value(forwardedKey{}).(forwarded)
	switch {
	case len(values) > 1:
	case strings.EqualFold(origin, scheme+"://"+r.Host):
		return "", nil
	case !told && g.isNamed(hostOf(r.Host)) && strings.EqualFold(origin, "https://"+r.Host): // TLS ends at a proxy
		return "", nil
	case slices.Contains(g.Origins, origin):
		return origin, nil
	}
	return "", &GateError{"bad_origin", fmt.Sprintf("pages of the origin %.200q may not send requests here", origin)}
}

// names reports whether the Host header of a request names this server.
func (g *Gate) names(r *http.Request) bool {
	host := hostOf(r.Host)
	if g.isNamed(host) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	tcp, ok := local.(*net.TCPAddr)
	if !ok { // no page reaches a unix socket
		return true
	}
	if port := portOf(r); port != fmt.Sprint(tcp.Port) {
		return false
	}
	at := tcp.AddrPort().Addr().Unmap().WithZone("")
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		name := strings.ToLower(host)
		return at.IsLoopback() && (name == "localhost" || strings.HasSuffix(name, ".localhost"))
	}
	addr = addr.Unmap().WithZone("")
	return addr == at || addr.IsLoopback() && at.IsLoopback()
}

// isNamed reports whether a host is one of the names of the server.
func (g *Gate) isNamed(host string) bool {
	return slices.ContainsFunc(g.Hosts, func(name string) bool { return strings.EqualFold(name, host) })
}

// hostOf returns a Host header without its port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return host
}

// portOf returns the port in the Host header of a request, or the one that it means
// without.
func portOf(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		return port
	}
	if Secure(r) {
		return "443"
	}
	return "80"
}

// CheckOrigin returns an error for a text that cannot be the origin of pages.
func CheckOrigin(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || text != u.Scheme+"://"+u.Host || text != strings.ToLower(text) {
		return fmt.Errorf("%.200q is no origin: use a scheme, a host and a port, such as https://example.com", text)
	}
	return nil
}
