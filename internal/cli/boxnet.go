package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/strict"
	"github.com/spool-run/spool/python"
)

// Limits of a request made for a sandbox.
const (
	netTimeout      = 30 * time.Second
	maxResponseBody = 8 << 20
)

// netServices answers the network asks of a sandbox, for the hosts that the
// user allowed.
type netServices struct{ config python.SandboxConfig }

// serve answers a network ask. It returns false for other asks.
func (n *netServices) serve(ctx context.Context, run *spool.Run, seq spool.Seq, ask *spool.Ask) bool {
	if len(n.config.Hosts) == 0 || ask.Kind != python.AskHTTP && ask.Kind != python.AskDNS {
		return false
	}
	value, err := n.answer(ctx, ask, netTimeout)
	answer := spool.Answer{Ask: seq, By: "spool box"}
	if err == nil {
		answer.Data, err = json.Marshal(value)
	}
	if err != nil {
		answer.Error = &spool.AnswerError{Code: netErrorCode(err), Message: err.Error()}
	}
	_ = run.Answer(context.WithoutCancel(ctx), answer, false) // the ask may be over
	return true
}

// answer returns the answer to a network ask, which may take so long.
func (n *netServices) answer(ctx context.Context, ask *spool.Ask, timeout time.Duration) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if ask.Kind == python.AskHTTP {
		return n.request(ctx, ask.Data)
	}
	return n.lookup(ctx, ask.Data)
}

// errHost means that a host or its address was not allowed.
var errHost = errors.New("network access to this host is not allowed")

// errMalformed means that an ask does not decode.
var errMalformed = errors.New("malformed request")

func netErrorCode(err error) string {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errHost):
		return "EACCES"
	case errors.Is(err, errMalformed):
		return "EINVAL"
	case errors.As(err, &dns):
		return "EHOSTUNREACH"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "ETIMEDOUT"
	}
	return "ECONNREFUSED"
}

// httpRequest and httpResponse are the payload and the answer of http.request.
type httpRequest struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    []byte            `json:"body_base64"`
}

type httpResponse struct {
	Status  int         `json:"status"`
	Reason  string      `json:"reason"`
	URL     string      `json:"url"`
	Headers http.Header `json:"headers"`
	Body    []byte      `json:"body_base64"`
}

func (n *netServices) request(ctx context.Context, data json.RawMessage) (*httpResponse, error) {
	var r httpRequest
	if err := strict.Unmarshal(data, &r, "the request"); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	if err := n.check(req); err != nil {
		return nil, err
	}
	// The address is checked when it is dialled: after name resolution, for
	// each address of a name and for each redirect.
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return n.checkAddress(address) }}
	client := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext},
		// An allowed host may redirect to one that is not allowed.
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) >= 10 {
				return errors.New("too many redirects")
			}
			return n.check(req)
		},
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResponseBody+1))
	if err != nil {
		return nil, fmt.Errorf("read the response: %w", err)
	}
	if len(body) > maxResponseBody {
		return nil, fmt.Errorf("the response has more than %d bytes", maxResponseBody)
	}
	return &httpResponse{resp.StatusCode, http.StatusText(resp.StatusCode), resp.Request.URL.String(), resp.Header, body}, nil
}

func (n *netServices) check(req *http.Request) error {
	u := req.URL
	if u.Scheme != "http" && u.Scheme != "https" || !n.config.AllowsHost(u.Host) && !n.config.AllowsHost(u.Hostname()) {
		return fmt.Errorf("%s: %w", u.Host, errHost)
	}
	return nil
}

// checkAddress refuses private addresses that the user did not allow by
// address: an allowed name may resolve to anything.
func (n *netServices) checkAddress(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%s: %w", address, errHost)
	}
	if !private(at.Addr()) || n.namesAddress(at) {
		return nil
	}
	return fmt.Errorf("%s is a private address, which must be allowed by address: %w", at.Addr().Unmap(), errHost)
}

// namesAddress reports whether the user allowed an address by itself, for all
// ports or for this one.
func (n *netServices) namesAddress(at netip.AddrPort) bool {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	return slices.ContainsFunc(n.config.Hosts, func(host string) bool {
		if addr, err := netip.ParseAddr(host); err == nil {
			return addr.Unmap() == at.Addr()
		}
		allowed, err := netip.ParseAddrPort(host)
		return err == nil && allowed.Addr().Unmap() == at.Addr() && allowed.Port() == at.Port()
	})
}

// notPublic are the networks that are not part of the public internet, and
// the metadata services that cloud providers have outside of these.
var notPublic = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
	"192.168.0.0/16", "198.18.0.0/15", "224.0.0.0/4", "240.0.0.0/4",
	"168.63.129.16/32",
	"::/96", "64:ff9b:1::/48", "2001::/32", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
)

var (
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixToV4 = netip.MustParsePrefix("2002::/16")
)

func prefixes(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		list[i] = netip.MustParsePrefix(text)
	}
	return list
}

// private reports whether an address is not part of the public internet: of
// this machine, of a local network, or of a metadata service. An IPv6 address
// that carries an IPv4 address counts as that one.
func private(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	b := a.As16()
	switch {
	case nat64.Contains(a):
		a = netip.AddrFrom4([4]byte(b[12:16]))
	case sixToV4.Contains(a):
		a = netip.AddrFrom4([4]byte(b[2:6]))
	}
	return slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (n *netServices) lookup(ctx context.Context, data json.RawMessage) (any, error) {
	var r struct {
		Hostname string `json:"hostname"`
		Family   int    `json:"family"`
	}
	if err := strict.Unmarshal(data, &r, "the request"); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if !n.config.AllowsHost(r.Hostname) {
		return nil, fmt.Errorf("%s: %w", r.Hostname, errHost)
	}
	network := map[int]string{0: "ip", 4: "ip4", 6: "ip6"}[r.Family]
	if network == "" {
		return nil, fmt.Errorf("unknown address family %d", r.Family)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, network, r.Hostname)
	if err != nil {
		return nil, err
	}
	addresses := make([]string, len(found))
	for i, ip := range found {
		addresses[i] = ip.Unmap().String()
	}
	return map[string]any{"addresses": addresses}, nil
}
