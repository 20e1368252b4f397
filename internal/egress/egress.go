// Package egress is a proxy through which an isolated run reaches the network: only
// hosts that rules allow by their names, at addresses that were checked. One listener
// takes HTTP requests, CONNECT and SOCKS5.
//
// The proxy looks a name up once and connects to the address that it checked, so that
// a name which changes meanwhile leads nowhere else. Every new decision is reported,
// and the bytes of each host are counted.
package egress

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/pause"
)

// The limits of a proxy.
const (
	maxRules       = 1000     // patterns in a list of hosts
	maxName        = 253      // bytes of the name of a host
	maxConnections = 512      // connections of a run at once; more wait
	maxHeader      = 64 << 10 // bytes of the header of a request
	maxTargets     = 256      // hosts and ports that are reported and counted one by one
	headerTimeout  = 10 * time.Second
	dialTimeout    = 15 * time.Second // of the look-up and the connection together
	idleTimeout    = 10 * time.Minute // without a byte
	// MaxAsks bounds the hosts and ports that a run asks about.
	MaxAsks = 64
	// DefaultAskTimeout is how long a connection waits for the answer to an ask.
	DefaultAskTimeout = 5 * time.Minute
)

// Options configure a proxy.
type Options struct {
	Rules *Rules
	// Ask decides about a target that no rule names; nil refuses it. It is
	// called once for each host and port, and the answer holds as long as the
	// proxy, unless it is not final: then the next connection asks again. The
	// context ends after AskTimeout, and the target is refused then.
	Ask        func(ctx context.Context, t Target) (allow bool, reason string, final bool)
	AskTimeout time.Duration // zero means [DefaultAskTimeout]
	// Report is told about the first decision of each kind for each target. It
	// must not wait.
	Report  func(Decision)
	Secrets []Secret
	// Judge decides instead of Rules and Ask, about every request, and nothing is
	// reported. It returns the addresses at which the target may be reached. An
	// error that is a [*Block] says how the request is answered.
	Judge func(ctx context.Context, q Query) ([]netip.Addr, error)
	// NoSOCKS refuses SOCKS5.
	NoSOCKS bool
	// Forward is the address of another proxy on this machine. Every connection
	// is carried there, and nothing is decided here.
	Forward string

	// LookUp resolves names; nil means the resolver of this machine.
	LookUp func(ctx context.Context, host string) ([]netip.Addr, error)
	// TLS is for requests that the proxy encrypts; nil means the roots of this
	// machine.
	TLS *tls.Config
	// Idle ends a connection that carries no byte for that long; zero means ten
	// minutes.
	Idle time.Duration
}

// Proxy is a proxy for one run. Its methods may be called concurrently.
type Proxy struct {
	o         Options
	ctx       context.Context
	cancel    context.CancelFunc
	transport *http.Transport
	server    *http.Server
	requests  *handoff // connections for the server
	room      chan struct{}
	guard     func() (*guard, error)
	tally     tally
	asks      asks
	work      sync.WaitGroup // added to only while not closed

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]struct{} // listeners and connections
}

// New returns a proxy that serves nothing yet. The caller must close it.
func New(o Options) *Proxy {
	if o.Rules == nil {
		o.Rules = &Rules{}
	}
	if o.AskTimeout == 0 {
		o.AskTimeout = DefaultAskTimeout
	}
	if o.Idle == 0 {
		o.Idle = idleTimeout
	}
	if o.LookUp == nil {
		o.LookUp = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	p := &Proxy{o: o, requests: newHandoff(), room: make(chan struct{}, maxConnections), open: make(map[io.Closer]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.guard = sync.OnceValues(func() (*guard, error) { return newGuard(o.Rules) })
	p.transport = &http.Transport{
		DialContext: p.dialCounted, TLSClientConfig: o.TLS, DisableCompression: true,
		TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: o.Idle, IdleConnTimeout: 30 * time.Second,
		MaxIdleConns: 64, MaxIdleConnsPerHost: 16, WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10,
	}
	p.server = &http.Server{
		Handler: p.handler(), ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ErrorLog:    log.New(io.Discard, "", 0), // what a run sends may be in it
	}
	p.work.Go(func() { _ = p.server.Serve(p.requests) }) // until Close
	return p
}

// Serve serves the connections of a listener in the background, until the proxy is
// closed, which closes the listener.
func (p *Proxy) Serve(l net.Listener) {
	if !p.own(l) {
		return
	}
	p.work.Go(func() {
		defer p.disown(l)
		for {
			select {
			case p.room <- struct{}{}:
			case <-p.ctx.Done():
				return
			}
			c, err := p.accept(l)
			if err != nil {
				return
			}
			p.take(c)
		}
	})
}

// accept waits for a connection. An error is final: that descriptors have run out is
// waited for.
func (p *Proxy) accept(l net.Listener) (net.Conn, error) {
	for {
		c, err := l.Accept()
		if err == nil || p.ctx.Err() != nil || !temporary(err) {
			return c, err
		}
		if err := pause.For(p.ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

func temporary(err error) bool {
	t, ok := err.(interface{ Temporary() bool })
	return ok && t.Temporary()
}

// own has Close close c. It reports false, and closes c, if the proxy is closed.
func (p *Proxy) own(c io.Closer) bool {
	p.mu.Lock()
	if !p.closed {
		p.open[c] = struct{}{}
	}
	closed := p.closed
	p.mu.Unlock()
	if closed {
		_ = c.Close()
	}
	return !closed
}

// disown closes c.
func (p *Proxy) disown(c io.Closer) {
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
	_ = c.Close()
}

// Close ends every connection, waits for their ends, and returns what each host and
// port has carried.
func (p *Proxy) Close() []Flow {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	var open []io.Closer
	for c := range p.open {
		open = append(open, c)
	}
	p.mu.Unlock()
	if first {
		p.cancel()
		for _, c := range open {
			_ = c.Close()
		}
		_ = p.server.Close()
		p.transport.CloseIdleConnections()
	}
	p.work.Wait()
	return p.tally.flows()
}
