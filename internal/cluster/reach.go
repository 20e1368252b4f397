package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/bulkconn"
)

// Times of connections through relays.
const (
	// directFor is how long a node may take to answer at its address before it is tried
	// through relays, too.
	directFor = time.Second
	// relayFor is the same for a relay, before the next one is tried.
	relayFor = 500 * time.Millisecond
	// directFirst is when the address of a node that is reached through a relay is first
	// tried again. Then it is tried after twice that, and so on.
	directFirst = time.Second
	// directAgain is how long that goes.
	directAgain = 30 * time.Second
	// retireAfter is how long requests may go on over a relay that is no longer needed.
	retireAfter = time.Minute
)

// way is a way to connect to a node.
type way struct {
	via  string        // the relay; empty for the address of the node
	pace time.Duration // when the next way is tried
	dial func(context.Context) (connection, error)
}

// ways returns the ways to a node, in the order in which they are tried.
func (p *peers) ways(n *peer) []way {
	var all []way
	p.mu.Lock()
	defer p.mu.Unlock()
	if n.addr != "" {
		w := way{pace: directFor, dial: func(ctx context.Context) (connection, error) { return p.connect(ctx, n.addr) }}
		if !n.blocked.IsZero() && time.Since(n.blocked) < directAgain {
			w.pace = 0
		}
		all = append(all, w)
	}
	if p.through == nil {
		return all
	}
	for _, by := range p.relaysOf(n) {
		all = append(all, way{via: by.Name, pace: relayFor, dial: func(ctx context.Context) (connection, error) {
			c, err := p.through(ctx, by, n.name)
			if err != nil {
				err = fmt.Errorf("through node %s: %w", by.Name, err)
			}
			return c, err
		}})
	}
	return all
}

// relaysOf returns the relays through which to try to connect to a node, the best first. The
// caller holds p.mu.
func (p *peers) relaysOf(n *peer) []member {
	members, _ := p.members.all()
	if n.addr == "" { // only those at which it keeps connections
		rec, _ := p.members.get(n.name)
		at := func(m member) bool { return !slices.Contains(rec.Relays, m.Name) }
		members = slices.DeleteFunc(slices.Clone(members), at)
	}
	good := rankRelays(members, n.name, func(m *member) bool { return time.Since(p.bad[m.Name]) < directAgain })
	if n.addr != "" {
		good = slices.DeleteFunc(good, func(m member) bool { return m.Name == p.self })
	}
	return good[:min(len(good), maxRelays)]
}

// reach connects to a node: at its address, and if that fails or takes long, through one
// relay after the other. The first connection counts.
func (p *peers) reach(n *peer) (c connection, via string, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
	defer cancel()
	type result struct {
		c   connection
		way *way
		err error
	}
	ways := p.ways(n)
	results := make(chan result, len(ways))
	begun, ended := 0, 0
	defer func() {
		for range begun - ended { // those that were too slow
			p.wg.Go(func() {
				if r := <-results; r.err == nil {
					_ = r.c.Close()
				}
			})
		}
	}()
	var errs []error
	for ended < len(ways) {
		var next <-chan time.Time
		if begun < len(ways) {
			w := &ways[begun]
			begun++
			p.wg.Go(func() {
				c, err := w.dial(ctx)
				results <- result{c, w, err}
			})
			next = time.After(w.pace)
		}
		select {
		case r := <-results:
			ended++
			p.note(n, r.way, r.err)
			if r.err == nil {
				return r.c, r.way.via, nil
			}
			errs = append(errs, r.err)
		case <-next:
		}
	}
	if len(ways) == 0 {
		return nil, "", errors.New("no node relays to it")
	}
	return nil, "", errors.Join(errs...)
}

// note remembers which ways worked.
func (p *peers) note(n *peer, w *way, err error) {
	var away *relayAwayError
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case w.via == "" && err != nil:
		n.blocked = time.Now()
	case w.via == "":
		n.blocked = time.Time{}
	case errors.As(err, &away):
		p.bad[w.via] = time.Now()
	case err != nil:
	default:
		delete(p.bad, w.via)
		if n.addr != "" && n.blocked.IsZero() { // it is still being tried
			n.blocked = time.Now()
		}
	}
}

// straighten tries the address of a node that is reached through a relay, until it
// answers. Requests that are under way may end over the relay.
func (p *peers) straighten(n *peer, c connection) {
	for wait := directFirst; ; wait = min(2*wait, directAgain) {
		pause(p.ctx, wait, nil)
		if !p.has(n, c) {
			return
		}
		ctx, cancel := context.WithTimeout(p.ctx, dialTimeout)
		direct, err := p.connect(ctx, n.addr)
		cancel()
		if err != nil {
			continue
		}
		p.mu.Lock()
		is := p.hasLocked(n, c)
		if is {
			n.client, n.via, n.blocked = direct, "", time.Time{}
		}
		p.mu.Unlock()
		if !is {
			_ = direct.Close()
			return
		}
		pause(p.ctx, retireAfter, nil)
		_ = c.Close()
		return
	}
}

// has reports whether a connection is that of a node.
func (p *peers) has(n *peer, c connection) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hasLocked(n, c)
}

func (p *peers) hasLocked(n *peer, c connection) bool {
	return !p.closed && p.nodes[n.name] == n && n.client == c
}

// via returns the relay through which a node is reached now, if there is one.
func (p *peers) via(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[node]; n != nil && n.client != nil {
		return n.via
	}
	return ""
}

// dialThrough connects to a node through a relay, which may be this node itself: then the
// other has parked a connection here. The node must prove that it is the one.
func dialThrough(ctx context.Context, o *Options, r *relay, by member, node, path string) (connection, error) {
	config := o.TLS.Clone()
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if is := s.PeerCertificates[0].Subject.CommonName; is != node {
			return fmt.Errorf("this is node %s, not %s", is, node)
		}
		return nil
	}
	var answered atomic.Bool // the relay is there, whatever it said
	connect := func(ctx context.Context, _, _ string) (c net.Conn, err error) {
		if by.Name == o.Name {
			c, err = r.call(ctx, node)
		} else {
			c, err = askRelay(ctx, o.TLS, by.Addr, relayPath+node)
		}
		var refused *refusedError
		switch {
		case err == nil:
			r.untrack(c)
			answered.Store(true)
			c = bulkconn.New(c)
		case errors.As(err, &refused):
			answered.Store(refused.status == http.StatusBadGateway)
		}
		return c, err
	}
	c, err := client.Dial(ctx, "https://"+node+path, client.Options{TLS: config, Connect: connect, Dial: dialTimeout, Reconnect: -1})
	if err == nil {
		return c, nil
	}
	if !answered.Load() {
		err = &relayAwayError{err}
	}
	return nil, err
}
