package execserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/spool-run/spool/internal/egress"
)

// Why a request is allowed or blocked, in the words of the dialect.
const (
	reasonAllow    = "allow"
	reasonDenied   = "denied"            // a rule denies the host
	reasonUnlisted = "not_allowed"       // no rule allows it
	reasonLocal    = "not_allowed_local" // its address is not public
)

// blockTexts are what a blocked request is told, by reason: the kind and the message.
var blockTexts = map[string][2]string{
	reasonDenied:   {"blocked-by-denylist", "Domain denied by the sandbox policy."},
	reasonUnlisted: {"blocked-by-allowlist", "Domain not in allowlist."},
	reasonLocal:    {"blocked-by-allowlist", "Sandbox policy blocks local/private network addresses."},
}

// protocols are the names of protocols in the dialect.
var protocols = map[string]string{
	egress.ProtocolHTTP: "http", egress.ProtocolConnect: "https_connect", egress.ProtocolSOCKS: "socks5_tcp",
}

// processProxy is the network proxy of one process.
type processProxy struct {
	*proxyLaunch
	session *session
	process string
	proxy   *egress.Proxy
	addr    string
	open    chan struct{} // has an element for each ask without an answer
}

// startProxy starts the proxy of a process. The caller must close it.
func (l *proxyLaunch) startProxy(sess *session, process string) (*processProxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the network proxy: %w", err)
	}
	p := &processProxy{proxyLaunch: l, session: sess, process: process, addr: listener.Addr().String(), open: make(chan struct{}, maxUnanswered)}
	p.proxy = egress.New(egress.Options{Judge: p.judge, NoSOCKS: !l.socks})
	p.proxy.Serve(listener)
	return p, nil
}

// close ends the proxy and its connections.
func (p *processProxy) close() { p.proxy.Close() }

// policyDecision are the params of network/policyDecision.
type policyDecision struct {
	ProcessID      string `json:"processId"`
	Timestamp      string `json:"timestamp"`
	Scope          string `json:"scope"`
	Decision       string `json:"decision"`
	Source         string `json:"source"`
	Reason         string `json:"reason"`
	Protocol       string `json:"protocol"`
	Host           string `json:"host"`
	Port           uint16 `json:"port"`
	Method         string `json:"method,omitempty"`
	Client         string `json:"client,omitempty"`
	PolicyOverride bool   `json:"policyOverride"`
}

// judge decides about a request and tells the client.
func (p *processProxy) judge(ctx context.Context, q egress.Query) ([]netip.Addr, error) {
	d := policyDecision{
		ProcessID: p.process, Scope: "domain", Decision: "deny", Source: "baseline_policy",
		Protocol: protocols[q.Protocol], Host: q.Host, Port: q.Port, Method: q.Method, Client: q.Client,
	}
	addrs, err := p.decide(ctx, q, &d)
	d.Timestamp = time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	if c := p.session.current(); c != nil {
		c.notify("network/policyDecision", d)
	}
	if d.Decision != "allow" {
		return nil, d.block()
	}
	return addrs, err
}

// decide fills in the decision, and returns the addresses of an allowed host.
func (p *processProxy) decide(ctx context.Context, q egress.Query, d *policyDecision) ([]netip.Addr, error) {
	matches := func(one domain) bool { return one.matches(q.Host) }
	named := slices.ContainsFunc(p.domains.allow, func(one domain) bool { return one.names(q.Host) })
	literal, err := isLocal(q.Target)
	switch {
	case slices.ContainsFunc(p.domains.deny, matches):
		d.Reason = reasonDenied
		return nil, nil
	case err != nil:
		d.Reason = reasonLocal
		return nil, nil //nolint:nilerr // an address that cannot be checked is not allowed
	case literal && !p.local && !named:
		d.Reason = reasonLocal
		return nil, nil
	case !slices.ContainsFunc(p.domains.allow, matches):
		if !p.ask(ctx, d) {
			return nil, nil
		}
	}
	addrs, err := q.Addresses(ctx)
	if !p.local && (!literal || !named) && !allPublic(addrs) {
		d.Source, d.Reason, d.PolicyOverride = "baseline_policy", reasonLocal, false
		return nil, nil //nolint:nilerr // as with codex, a host without an address is not a public one
	}
	if d.Reason == "" {
		d.Reason = reasonAllow
	}
	d.Decision = "allow"
	return addrs, err
}

// isLocal reports whether a host names an address that is not public.
func isLocal(t egress.Target) (bool, error) {
	if !t.Addr().IsValid() {
		return t.Host == "localhost", nil
	}
	public, err := egress.Public(t.Addr())
	return !public, err
}

// allPublic reports whether there are addresses, all public.
func allPublic(addrs []netip.Addr) bool {
	for _, a := range addrs {
		if public, err := egress.Public(a); err != nil || !public {
			return false
		}
	}
	return len(addrs) > 0
}

// ask has the client decide about a host that no rule names, and reports whether it
// allows it. Without an answer the host is not allowed.
func (p *processProxy) ask(ctx context.Context, d *policyDecision) bool {
	d.Reason = reasonUnlisted
	if p.wait == 0 {
		return false
	}
	d.Source = "decider"
	c := p.session.current()
	if c == nil {
		return false
	}
	answer, err := p.call(ctx, c, d)
	if err != nil {
		return false
	}
	switch reason := answer.Decision.Reason; answer.Decision.Type {
	case "allow":
		d.PolicyOverride = true
		return true
	case "deny", "ask":
		if reason != nil {
			d.Decision, d.Reason = answer.Decision.Type, *reason
		}
	}
	return false
}

// policyAnswer is the result of network/policyRequest.
type policyAnswer struct {
	Decision struct {
		Type   string  `json:"type"`
		Reason *string `json:"reason"`
	} `json:"decision"`
}

// call asks the client and waits for the answer. An ask without an answer in time
// counts until the answer comes or the connection ends.
func (p *processProxy) call(ctx context.Context, c *conn, d *policyDecision) (policyAnswer, error) {
	type target struct {
		Protocol string `json:"protocol"`
		Host     string `json:"host"`
		Port     uint16 `json:"port"`
	}
	request := struct {
		ProcessID string `json:"processId"`
		Request   target `json:"request"`
	}{p.process, target{d.Protocol, d.Host, d.Port}}
	select {
	case p.open <- struct{}{}:
	default:
		return policyAnswer{}, errors.New("too many asks have no answer")
	}
	if !p.session.server.begin() {
		<-p.open
		return policyAnswer{}, errGone
	}
	type result struct {
		policyAnswer
		err error
	}
	done := make(chan result, 1)
	go func() {
		defer p.session.server.wg.Done()
		var r result
		r.err = c.rpc.Call(context.Background(), "network/policyRequest", request, &r.policyAnswer) // until the connection ends
		<-p.open
		done <- r
	}()
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	select {
	case r := <-done:
		return r.policyAnswer, r.err
	case <-ctx.Done():
		return policyAnswer{}, ctx.Err()
	}
}

// block returns the answer to a request that is blocked.
func (d *policyDecision) block() *egress.Block {
	text, ok := blockTexts[d.Reason]
	if !ok {
		text = [2]string{"blocked-by-policy", "Request blocked by network policy."}
	}
	b := &egress.Block{Header: http.Header{"Content-Type": {"text/plain"}, "X-Proxy-Error": {text[0]}}, Body: text[1]}
	if d.Protocol != "http" {
		return b
	}
	body, err := json.Marshal(struct {
		Status   string `json:"status"`
		Host     string `json:"host"`
		Reason   string `json:"reason"`
		Decision string `json:"decision"`
		Source   string `json:"source"`
		Protocol string `json:"protocol"`
		Port     uint16 `json:"port"`
		Message  string `json:"message"`
	}{"blocked", d.Host, d.Reason, d.Decision, d.Source, d.Protocol, d.Port, text[1]})
	if err == nil { // plain values always encode
		b.Header.Set("Content-Type", "application/json")
		b.Body = string(body)
	}
	return b
}
