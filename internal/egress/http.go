package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
)

// handler serves requests in absolute form and CONNECT.
func (p *Proxy) handler() http.Handler {
	forward := &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     p.transport,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // what a run sends may be in it
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, err error) { answer(w, err) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.enter() {
			return
		}
		defer p.work.Done()
		if r.Method == http.MethodConnect {
			p.serveConnect(w, r)
			return
		}
		if r.URL.Scheme != "http" && r.URL.Scheme != "https" || r.URL.Host == "" {
			http.Error(w, "spool: this is a proxy: it takes requests with a whole http or https URL, CONNECT and SOCKS5", http.StatusBadRequest)
			return
		}
		secret, err := p.aim(r)
		if err != nil {
			answer(w, err)
			return
		}
		t, err := newTarget(r.URL.Hostname(), portOf(r))
		if err != nil {
			answer(w, &malformed{err})
			return
		}
		addrs, err := p.decide(r.Context(), Query{t, ProtocolHTTP, r.Method, r.RemoteAddr, p})
		if err != nil {
			answer(w, err)
			return
		}
		ctx := context.WithValue(r.Context(), routeKey{}, &route{t, addrs, secret})
		forward.ServeHTTP(w, r.WithContext(ctx))
	})
}

// route is where a request goes, in its context.
type route struct {
	target Target
	addrs  []netip.Addr
	secret *Secret
}

type routeKey struct{}

// portOf returns the port of a request.
func portOf(r *http.Request) string {
	switch port := r.URL.Port(); {
	case port != "":
		return port
	case r.URL.Scheme == "https":
		return "443"
	}
	return "80"
}

// rewrite makes the request that is sent on: the host is the one that was allowed,
// whatever the request's header says.
func (p *Proxy) rewrite(pr *httputil.ProxyRequest) {
	to := pr.In.Context().Value(routeKey{}).(*route)
	pr.Out.URL.User = nil
	pr.Out.Host = ""
	if to.secret != nil {
		pr.Out.Header.Set(to.secret.Header, to.secret.Value)
	}
}

// dialCounted connects for the transport. The address is the one of the request's
// route: there is no second look-up.
func (p *Proxy) dialCounted(ctx context.Context, _, _ string) (net.Conn, error) {
	to, ok := ctx.Value(routeKey{}).(*route)
	if !ok {
		return nil, errors.New("a request without a route")
	}
	c, err := p.connect(ctx, to.target, to.addrs)
	if err != nil {
		return nil, err
	}
	cc := &counted{c, p, p.tally.of(to.target.Host, to.target.Port)}
	if !p.own(cc) {
		return nil, net.ErrClosed
	}
	cc.to.connections.Add(1)
	return cc, nil
}

// serveConnect makes a tunnel.
func (p *Proxy) serveConnect(w http.ResponseWriter, r *http.Request) {
	host, port, ok := cutPort(r.Host)
	if !ok {
		answer(w, &malformed{fmt.Errorf("CONNECT %.80q names no port", r.Host)})
		return
	}
	t, err := newTarget(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), port)
	if err != nil {
		answer(w, &malformed{err})
		return
	}
	addrs, err := p.decide(r.Context(), Query{t, ProtocolConnect, r.Method, r.RemoteAddr, p})
	if err != nil {
		answer(w, err)
		return
	}
	server, err := p.connect(r.Context(), t, addrs)
	if err != nil {
		answer(w, err)
		return
	}
	if !p.own(server) {
		return
	}
	defer p.disown(server)
	c, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		answer(w, err)
		return
	}
	defer c.Close()
	client, ok := c.(*inbound)
	if !ok {
		return
	}
	early, err := io.ReadAll(io.LimitReader(buffered, int64(buffered.Reader.Buffered())))
	if err != nil {
		return
	}
	if _, err := client.Write([]byte("HTTP/1.1 200 Connection established\r\n\r\n")); err != nil {
		return
	}
	p.relay(client, bytes.Clone(early), server, t)
}

// malformed is the error of a request that cannot be understood.
type malformed struct{ error }

// Unwrap returns what is wrong.
func (m *malformed) Unwrap() error { return m.error }

// answer answers a request that failed.
func answer(w http.ResponseWriter, err error) {
	var block *Block
	if errors.As(err, &block) {
		maps.Copy(w.Header(), block.Header)
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, block.Body) // the client may be gone
		return
	}
	status := http.StatusBadGateway
	var no *refusal
	var bad *malformed
	text := err.Error()
	switch {
	case errors.As(err, &no):
		status = http.StatusForbidden
		w.Header().Set("X-Proxy-Error", "blocked-by-allowlist")
		text += fmt.Sprintf(" (allow it with --allow-net %s)", no.target.Host)
	case errors.As(err, &bad):
		status = http.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded):
		status = http.StatusGatewayTimeout
	}
	http.Error(w, "spool: "+text, status)
}
