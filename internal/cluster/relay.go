package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A node that cannot be connected to is reached through another one, its relay. The relay
// copies bytes: inside, the two nodes have the TLS connection that they would have without
// it. There are two ways on from a relay: it connects to the address of the node, or the
// node, which has none, has parked connections there. A relay asks no other relay.

// Limits of relays.
const (
	// DefaultTunnels is how many connections a node relays at once.
	DefaultTunnels = 256
	// DefaultParked is how many connections a node without an address keeps at each of
	// its relays, and how many a relay keeps for each node.
	DefaultParked = 4
	// maxRelays is at how many nodes one without an address keeps connections, and
	// through how many nodes others try to reach one.
	maxRelays = 3
)

// Paths of requests to relays.
const (
	relayPath = "/v1/relay/" // and the name of a node: a tunnel to it
	parkPath  = "/v1/park"   // keep this connection for a tunnel to the caller
)

// relayProtocol is what a connection to a relay is upgraded to: bytes.
const relayProtocol = "spool-relay"

// What a relay says on a parked connection. The node repeats it.
const (
	parkAlive = 'a' // are you there?
	parkCall  = 'c' // what follows comes from another node
)

// parkEvery is how often a relay asks whether the node of a parked connection is there.
const parkEvery = 10 * time.Second

// relay is this node as the relay of others.
type relay struct {
	self    string
	members *members
	tunnels int           // at once
	parked  int           // connections of one node
	every   time.Duration // parkEvery

	bytes  atomic.Int64 // that were relayed
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	open    int                      // tunnels
	conns   map[net.Conn]struct{}    // to end with the relay
	waiting map[string][]*parkedConn // of nodes, oldest first
	came    chan struct{}            // closed and replaced when a connection was parked
	closed  bool
}

// parkedConn is a parked connection.
type parkedConn struct {
	called chan struct{} // closed when a tunnel wants the connection
	ready  chan net.Conn // then it comes here, or the channel is closed
	gone   chan struct{} // closed if nobody waits for it any more
}

func newRelay(o *Options, m *members) *relay {
	r := &relay{self: o.Name, members: m, tunnels: o.Tunnels, parked: o.Parked, every: parkEvery,
		conns: make(map[net.Conn]struct{}), waiting: make(map[string][]*parkedConn), came: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// close ends all tunnels and waits for them.
func (r *relay) close() {
	r.mu.Lock()
	r.closed = true
	for c := range r.conns {
		cut(c)
	}
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
}

// handler returns what other nodes ask of a relay.
func (r *relay) handler() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+relayPath+"{node}", r.serveTunnel)
	mux.HandleFunc("POST "+parkPath, r.servePark)
	return mux
}

// caller returns the node that sent a request, from its certificate.
func caller(w http.ResponseWriter, req *http.Request) (node string, ok bool) {
	if req.TLS == nil || len(req.TLS.VerifiedChains) == 0 {
		http.Error(w, "only nodes of the cluster are relayed", http.StatusForbidden)
		return "", false
	}
	return req.TLS.PeerCertificates[0].Subject.CommonName, true
}

// enter counts one that must end before the relay does. It reports false if the relay ends.
func (r *relay) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.wg.Add(1)
	return true
}

// serveTunnel connects the caller to the node that it names.
func (r *relay) serveTunnel(w http.ResponseWriter, req *http.Request) {
	if _, ok := caller(w, req); !ok {
		return
	}
	if !r.enter() {
		http.Error(w, "this node ends", http.StatusServiceUnavailable)
		return
	}
	defer r.wg.Done()
	if !r.take() {
		http.Error(w, fmt.Sprintf("node %s relays %d connections and takes no more", r.self, r.tunnels), http.StatusServiceUnavailable)
		return
	}
	defer r.give()
	ctx, cancel := context.WithTimeout(req.Context(), dialTimeout)
	stop := context.AfterFunc(r.ctx, cancel)
	to, err := r.reach(ctx, req.PathValue("node"))
	stop()
	cancel()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer r.cut(to)
	from, err := r.upgrade(w)
	if err != nil {
		return
	}
	defer r.cut(from)
	r.join(from, to)
}

// take takes one of the tunnels. It reports false if there is none left.
func (r *relay) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open >= r.tunnels {
		return false
	}
	r.open++
	return true
}

func (r *relay) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open--
}

// reach connects to a node, at its address or over a connection that it parked here.
func (r *relay) reach(ctx context.Context, node string) (net.Conn, error) {
	rec, ok := r.members.get(node)
	if !ok || rec.State == nodeGone || node == r.self {
		return nil, fmt.Errorf("node %s relays to no node %.70q", r.self, node)
	}
	if rec.Addr == "" {
		c, err := r.call(ctx, node)
		if err != nil {
			return nil, fmt.Errorf("node %s keeps no connection at node %s: %w", node, r.self, err)
		}
		return c, nil
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", rec.Addr)
	if err != nil {
		return nil, fmt.Errorf("node %s does not reach node %s: %w", r.self, node, err)
	}
	return c, r.track(c)
}

// upgrade takes the connection of a request, and answers it.
func (r *relay) upgrade(w http.ResponseWriter) (net.Conn, error) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	if err := r.track(c); err != nil {
		return nil, err
	}
	_, err = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+relayProtocol+"\r\n\r\n")
	if err == nil && rw.Reader.Buffered() > 0 {
		err = errors.New("the caller did not wait for the answer")
	}
	if err != nil {
		r.cut(c)
		return nil, err
	}
	return c, nil
}

// track has a connection end with the relay.
func (r *relay) track(c net.Conn) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		cut(c)
		return net.ErrClosed
	}
	r.conns[c] = struct{}{}
	return nil
}

// untrack has a connection end when its user ends it.
func (r *relay) untrack(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
}

// cut ends a connection.
func (r *relay) cut(c net.Conn) {
	r.untrack(c)
	cut(c)
}

// cut ends a connection without waiting for the other end, also if it has TLS.
func cut(c net.Conn) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	_ = c.Close() // there is nothing to save
}

// join copies bytes between two connections until one of them ends.
func (r *relay) join(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(countedWriter{way[0], &r.bytes}, way[1]) // either end may fail
			cut(a)
			cut(b)
		})
	}
	wg.Wait()
}

// countedWriter counts what it writes.
type countedWriter struct {
	w io.Writer
	n *atomic.Int64
}

func (c countedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// servePark keeps the connection of a node that has no address.
func (r *relay) servePark(w http.ResponseWriter, req *http.Request) {
	node, ok := caller(w, req)
	if !ok {
		return
	}
	if rec, ok := r.members.get(node); !ok || rec.State == nodeGone || r.tunnels <= 0 {
		http.Error(w, fmt.Sprintf("node %s keeps no connections of node %s", r.self, node), http.StatusConflict)
		return
	}
	if !r.enter() {
		http.Error(w, "this node ends", http.StatusServiceUnavailable)
		return
	}
	defer r.wg.Done()
	p := &parkedConn{called: make(chan struct{}), ready: make(chan net.Conn), gone: make(chan struct{})}
	if !r.park(node, p) {
		http.Error(w, fmt.Sprintf("node %s keeps %d connections of node %s and takes no more", r.self, r.parked, node), http.StatusServiceUnavailable)
		return
	}
	defer close(p.ready)
	defer r.unpark(node, p)
	c, err := r.upgrade(w)
	if err == nil {
		err = r.watch(p, c)
	}
	if err != nil {
		if c != nil {
			r.cut(c)
		}
		return
	}
	select {
	case p.ready <- c:
	case <-p.gone:
		r.cut(c)
	}
}

// watch asks now and then whether the node of a parked connection is there, until a
// tunnel wants the connection.
func (r *relay) watch(p *parkedConn, c net.Conn) error {
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		say := byte(parkAlive)
		select {
		case <-p.called:
			say = parkCall
		case <-tick.C:
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
		if err := echo(c, say, dialTimeout); err != nil {
			return err
		}
		if say == parkCall {
			return nil
		}
	}
}

// echo sends a byte and waits until it comes back.
func echo(c net.Conn, say byte, patience time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	b := []byte{say}
	if _, err := c.Write(b); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if b[0] != say {
		return fmt.Errorf("a parked connection answered %q", b)
	}
	return c.SetDeadline(time.Time{})
}

// park adds a parked connection. It reports false if the node has enough of them.
func (r *relay) park(node string, p *parkedConn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting[node]) >= r.parked {
		return false
	}
	r.waiting[node] = append(r.waiting[node], p)
	close(r.came)
	r.came = make(chan struct{})
	return true
}

// unpark takes a parked connection out, if no tunnel has it.
func (r *relay) unpark(node string, p *parkedConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, other := range r.waiting[node] {
		if other == p {
			r.waiting[node] = append(r.waiting[node][:i:i], r.waiting[node][i+1:]...)
		}
	}
	if len(r.waiting[node]) == 0 {
		delete(r.waiting, node)
	}
}

// call takes a parked connection of a node, for which it waits if there is none: the node
// parks another as soon as one was taken.
func (r *relay) call(ctx context.Context, node string) (net.Conn, error) {
	for {
		r.mu.Lock()
		came := r.came
		var p *parkedConn
		if all := r.waiting[node]; len(all) > 0 {
			p = all[0]
			r.waiting[node] = all[1:]
		}
		r.mu.Unlock()
		if p == nil {
			select {
			case <-came:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-r.ctx.Done():
				return nil, net.ErrClosed
			}
		}
		close(p.called)
		select {
		case c := <-p.ready:
			if c != nil {
				return c, nil
			}
		case <-ctx.Done():
			close(p.gone)
			return nil, context.Cause(ctx)
		}
	}
}

// RelayStatus says what a node relays for others.
type RelayStatus struct {
	Tunnels int   `json:"tunnels"` // connections that it relays now
	Parked  int   `json:"parked"`  // connections of nodes without an address that it keeps
	Bytes   int64 `json:"bytes"`   // that it has relayed
}

func (r *relay) status() RelayStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := RelayStatus{Tunnels: r.open, Bytes: r.bytes.Load()}
	for _, all := range r.waiting {
		s.Parked += len(all)
	}
	return s
}

// askRelay connects to a relay and sends a request whose connection becomes the answer.
func askRelay(ctx context.Context, config *tls.Config, addr, path string) (net.Conn, error) {
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return setUp(ctx, c, func() (net.Conn, error) { return upgraded(ctx, c, path) })
}

// setUp returns the connection that do makes of c. It ends c after an error, and with ctx
// until do has returned.
func setUp(ctx context.Context, c net.Conn, do func() (net.Conn, error)) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { cut(c) })
	made, err := do()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cut(c)
		return nil, err
	}
	return made, nil
}

// relayAwayError says that a relay was not reached, or takes nothing more.
type relayAwayError struct{ err error }

func (e *relayAwayError) Error() string { return e.err.Error() }
func (e *relayAwayError) Unwrap() error { return e.err }
