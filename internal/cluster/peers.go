package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/bulkconn"
	"github.com/spool-run/spool/internal/record"
)

// Backend is what a node does for the others: what the runs of one machine can do.
type Backend interface {
	spool.Backend
	spool.Watcher
	spool.Counter
	spool.Remover
	spool.StorageGrouper
	spool.Renamer
	spool.Meter
	spool.Inspector
	spool.Workspaces
	record.Follower
}

// connection is a way to the runs of another node.
type connection interface {
	Backend
	io.Closer
}

var _ connection = (*client.Client)(nil)

// Times of connections between nodes.
const (
	// dialTimeout bounds the connection to another node: one that was paused
	// accepts connections and says nothing.
	dialTimeout = 2 * time.Second
	// dialAgain is how long a failure to connect is the answer for others.
	dialAgain = 100 * time.Millisecond
	// dialLost is the same for a node that was fenced.
	dialLost = 2 * time.Second
)

// peers are the connections to other nodes. Each is made when it is needed.
type peers struct {
	self    string
	connect func(ctx context.Context, addr string) (connection, error)
	// through connects through a relay; nil if there is no such way.
	through func(ctx context.Context, relay member, node string) (connection, error)
	members *members
	ctx     context.Context // ends with close
	cancel  context.CancelFunc

	mu     sync.Mutex
	nodes  map[string]*peer
	bad    map[string]time.Time // when a relay did not answer
	closed bool
	wg     sync.WaitGroup
}

// peer is the connection to a node.
type peer struct {
	name, addr string
	client     connection
	via        string        // the relay of the connection; empty if there is none
	dialing    chan struct{} // closed when the present attempt is over; nil if there is none
	err        error         // of the last attempt
	failed     time.Time
	blocked    time.Time // when the address last did not answer
}

// connectBulk connects to a node below TLS. Logs, which are large, come over the connection.
func connectBulk(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return bulkconn.New(c), nil
}

// newPeers returns connections to what other nodes have below a path.
func newPeers(o *Options, m *members, r *relay, path string) *peers {
	p := &peers{self: o.Name, connect: o.connect, members: m, nodes: make(map[string]*peer), bad: make(map[string]time.Time)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	if p.connect == nil {
		p.connect = func(ctx context.Context, addr string) (connection, error) {
			if c, err := dialNear(ctx, o.TLS, addr, path); err == nil {
				return c, nil
			}
			return client.Dial(ctx, "https://"+addr+path, client.Options{TLS: o.TLS, Connect: connectBulk, Dial: dialTimeout, Reconnect: -1})
		}
		p.through = func(ctx context.Context, by member, node string) (connection, error) {
			return dialThrough(ctx, o, r, by, node, path)
		}
	}
	return p
}

// get returns the connection to a node, which it makes if there is none.
func (p *peers) get(ctx context.Context, node string) (connection, error) {
	rec, ok := p.members.get(node)
	if !ok {
		return nil, fmt.Errorf("node %s is not known", node)
	}
	if rec.Addr == "" && len(rec.Relays) == 0 {
		return nil, &unreachableError{fmt.Errorf("node %s has no address and keeps no connections at relays now", node)}
	}
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, spool.ErrClosed
		}
		n := p.nodes[node]
		if n == nil || n.addr != rec.Addr {
			if n != nil {
				p.end(n.client)
			}
			n = &peer{name: node, addr: rec.Addr}
			p.nodes[node] = n
		}
		c, dialing := n.client, n.dialing
		again := dialAgain
		if !rec.holds() {
			again = dialLost
		}
		switch {
		case c != nil:
			p.mu.Unlock()
			return c, nil
		case dialing == nil && n.err != nil && time.Since(n.failed) < again:
			p.mu.Unlock()
			return nil, n.err
		case dialing == nil:
			n.dialing = make(chan struct{})
			dialing = n.dialing
			p.wg.Go(func() { p.dial(n) })
		}
		p.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// dial makes a connection.
func (p *peers) dial(n *peer) {
	c, via, err := p.reach(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(n.dialing)
	n.dialing = nil
	if err != nil {
		n.err, n.failed = &unreachableError{err}, time.Now()
		return
	}
	if p.closed {
		p.end(c)
		return
	}
	n.client, n.via, n.err = c, via, nil
	if via != "" && n.addr != "" {
		p.wg.Go(func() { p.straighten(n, c) })
	}
}

// drop ends a connection that is no good any more. c is nil for whatever there is.
func (p *peers) drop(node string, c connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.nodes[node]; n != nil && n.client != nil && (c == nil || n.client == c) {
		p.end(n.client)
		n.client = nil
	}
}

// end closes a client, which waits for its readers. The caller holds p.mu.
func (p *peers) end(c connection) {
	if c != nil {
		p.wg.Go(func() { _ = c.Close() })
	}
}

func (p *peers) close() {
	p.cancel()
	p.mu.Lock()
	p.closed = true
	for _, n := range p.nodes {
		p.end(n.client)
		n.client = nil
	}
	p.mu.Unlock()
	p.wg.Wait()
}

// unreachableError says that a node could not be connected to.
type unreachableError struct{ err error }

func (e *unreachableError) Error() string { return e.err.Error() }
func (e *unreachableError) Unwrap() error { return e.err }

// isCut reports whether an error is that of a connection, which says nothing about
// runs.
func isCut(err error) bool {
	var lost *client.DisconnectedError
	var unreachable *unreachableError
	return errors.As(err, &lost) || errors.As(err, &unreachable) || errors.Is(err, spool.ErrClosed)
}
