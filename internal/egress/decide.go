package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// The protocols by which a run asks for a connection.
const (
	ProtocolHTTP    = "http"
	ProtocolConnect = "connect"
	ProtocolSOCKS   = "socks5"
)

// Decision is what the proxy decided about a target.
type Decision struct {
	Host     string `json:"host"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
	Allowed  bool   `json:"allowed"`
	Reason   string `json:"reason,omitempty"` // of a refusal
}

// refusal is the error of a target that the run may not reach.
type refusal struct {
	target Target
	reason string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the run may not connect to %s: %s", r.target, r.reason)
}

// Query is a request that a judge decides about.
type Query struct {
	Target
	Protocol string
	Method   string // of an HTTP request; empty with SOCKS5
	Client   string // the address that it came from

	proxy *Proxy
}

// Addresses looks the host of the request up, for a judge.
func (q *Query) Addresses(ctx context.Context) ([]netip.Addr, error) {
	return q.proxy.addresses(ctx, q.Target)
}

// Block is the error of a request that a judge refuses, with the answer to it.
type Block struct {
	Header http.Header
	Body   string
}

func (b *Block) Error() string { return "the request is blocked" }

// decide returns the addresses of a target that the run may reach it at, or a
// [*refusal] or a [*Block].
func (p *Proxy) decide(ctx context.Context, q Query) ([]netip.Addr, error) {
	if p.o.Judge != nil {
		return p.o.Judge(ctx, q)
	}
	t, protocol := q.Target, q.Protocol
	reason := ""
	switch p.o.Rules.about(t) {
	case denied:
		reason = "a rule denies it"
	case unnamed:
		if p.o.Ask == nil {
			reason = "no rule allows it"
		} else if allow, why := p.asks.ask(p, ctx, t); !allow {
			reason = why
		}
	}
	var addrs []netip.Addr
	if reason == "" {
		found, err := p.addresses(ctx, t)
		if err != nil {
			return nil, err
		}
		g, err := p.guard()
		if err != nil {
			return nil, err
		}
		for _, a := range found {
			a = a.Unmap().WithZone("")
			if err := g.check(t, a); err != nil {
				reason = err.Error()
				continue
			}
			addrs = append(addrs, a)
		}
	}
	d := Decision{Host: t.Host, Port: t.Port, Protocol: protocol, Allowed: len(addrs) > 0}
	if !d.Allowed {
		d.Reason = reason
	}
	if p.tally.first(d) && p.o.Report != nil {
		p.o.Report(d)
	}
	if !d.Allowed {
		return nil, &refusal{t, reason}
	}
	return addrs, nil
}

// addresses looks a target up, once.
func (p *Proxy) addresses(ctx context.Context, t Target) ([]netip.Addr, error) {
	if t.addr.IsValid() {
		return []netip.Addr{t.addr}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	found, err := p.o.LookUp(ctx, t.Host)
	if err == nil && len(found) == 0 {
		err = errors.New("it has no address")
	}
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", t.Host, err)
	}
	return found, nil
}

// connect connects to a target at one of the addresses that it was allowed at.
func (p *Proxy) connect(ctx context.Context, t Target, addrs []netip.Addr) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	var errs []error
	for _, a := range addrs {
		c, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, t.Port).String())
		if err == nil {
			return c.(*net.TCPConn), nil
		}
		errs = append(errs, err)
	}
	return nil, fmt.Errorf("connect to %s: %w", t, errors.Join(errs...))
}

// asks are the targets that were asked about.
type asks struct {
	mu   sync.Mutex
	list map[Target]*ask
}

// ask is a question about a target. Its answer is valid once done is closed.
type ask struct {
	done   chan struct{}
	allow  bool
	reason string
}

// ask asks about a target, or waits for the answer that another connection waits
// for.
func (a *asks) ask(p *Proxy, ctx context.Context, t Target) (allow bool, reason string) {
	a.mu.Lock()
	q := a.list[t]
	if q == nil {
		if len(a.list) >= MaxAsks {
			a.mu.Unlock()
			return false, fmt.Sprintf("no rule allows it, and the run has asked about %d hosts", MaxAsks)
		}
		if !p.enter() {
			a.mu.Unlock()
			return false, "the run has ended"
		}
		if a.list == nil {
			a.list = make(map[Target]*ask)
		}
		q = &ask{done: make(chan struct{})}
		a.list[t] = q
		go func() {
			defer p.work.Done()
			defer close(q.done)
			ctx, cancel := context.WithTimeout(p.ctx, p.o.AskTimeout)
			defer cancel()
			var final bool
			if q.allow, q.reason, final = p.o.Ask(ctx, t); q.allow {
				return
			}
			if ctx.Err() != nil {
				final, q.reason = false, fmt.Sprintf("no answer came within %v", p.o.AskTimeout)
			}
			if !final { // the next connection asks again
				a.mu.Lock()
				delete(a.list, t)
				a.mu.Unlock()
			}
			if q.reason == "" {
				q.reason = "it was refused"
			}
		}()
	}
	a.mu.Unlock()
	select {
	case <-q.done:
		return q.allow, q.reason
	case <-ctx.Done():
		return false, "the connection ended before the answer"
	}
}

// enter counts work that Close waits for, if the proxy is not closed.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.work.Add(1)
	return true
}
