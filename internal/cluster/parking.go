package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// parkAgain is how long a node waits after a relay did not take a connection.
const parkAgain = time.Second

// parking is how others connect to a node that has no address: it keeps connections at
// relays, and serves what comes over them.
type parking struct {
	self    string
	config  *tls.Config
	members *members
	each    int           // connections at each relay
	every   time.Duration // parkEvery
	changed func()        // is called when it has other relays, and must not wait
	log     *slog.Logger
	came    chan net.Conn // what others sent
	freed   chan struct{} // has room for one; filled when a relay was given up

	mu     sync.Mutex
	relays map[string]*atRelay
	bad    map[string]time.Time // when a relay was given up
}

// atRelay is the connections at one relay.
type atRelay struct {
	name, addr string
	cancel     context.CancelFunc
	parked     int
	works      bool // a connection was parked, and the relay was not given up since
}

func newParking(o *Options, m *members, changed func()) *parking {
	return &parking{self: o.Name, config: o.TLS, members: m, each: o.Parked, every: parkEvery, changed: changed, log: o.Log,
		came: make(chan net.Conn), freed: make(chan struct{}, 1), relays: make(map[string]*atRelay), bad: make(map[string]time.Time)}
}

// names returns the relays through which the node can be reached now.
func (k *parking) names() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for name, m := range k.relays {
		if m.works {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// run keeps connections at relays until the context ends.
func (k *parking) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		all, changed := k.members.all()
		for _, m := range k.choose(all) {
			mctx, cancel := context.WithCancel(ctx)
			m.cancel = cancel
			k.mu.Lock()
			k.relays[m.name] = m
			k.mu.Unlock()
			for range k.each {
				wg.Go(func() { k.keep(mctx, m) })
			}
		}
		select {
		case <-changed:
		case <-k.freed:
		case <-time.After(parkAgain):
		case <-ctx.Done():
		}
	}
}

// choose gives up relays that are no good any more, and returns those to begin with.
func (k *parking) choose(all []member) (begin []*atRelay) {
	k.mu.Lock()
	defer k.mu.Unlock()
	good := rankRelays(all, k.self, func(m *member) bool { return time.Since(k.bad[m.Name]) < parkAgain })
	for name, m := range k.relays {
		if !slices.ContainsFunc(good, func(n member) bool { return n.Name == name && n.Addr == m.addr }) {
			k.giveUp(m)
		}
	}
	for _, n := range good {
		if len(k.relays)+len(begin) < maxRelays && k.relays[n.Name] == nil && time.Since(k.bad[n.Name]) >= parkAgain {
			begin = append(begin, &atRelay{name: n.Name, addr: n.Addr})
		}
	}
	return begin
}

// giveUp ends the connections at a relay. The caller holds k.mu.
func (k *parking) giveUp(m *atRelay) {
	if k.relays[m.name] != m {
		return
	}
	m.cancel()
	delete(k.relays, m.name)
	k.bad[m.name] = time.Now()
	if m.works {
		k.log.Info("the node is reached no more through a relay", "relay", m.name)
		k.changed()
	}
	select {
	case k.freed <- struct{}{}:
	default:
	}
}

// keep keeps one connection at a relay, and another whenever it was used.
func (k *parking) keep(ctx context.Context, m *atRelay) {
	for ctx.Err() == nil {
		c, err := askRelay(ctx, k.config, m.addr, parkPath)
		if err == nil {
			k.count(m, 1)
			stop := context.AfterFunc(ctx, func() { cut(c) })
			err = k.await(c)
			if !stop() {
				err = context.Cause(ctx)
			}
			k.count(m, -1)
			if err == nil {
				k.hand(ctx, c)
				continue
			}
			cut(c)
		}
		if k.failed(ctx, m, err) {
			return
		}
		pause(ctx, parkAgain, nil)
	}
}

// count counts the connections at a relay.
func (k *parking) count(m *atRelay, more int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	m.parked += more
	if m.parked > 0 && !m.works {
		m.works = true
		k.log.Info("the node is reached through a relay", "relay", m.name)
		k.changed()
	}
}

// failed notes that a relay did not take or lost a connection. It reports true if there
// is none left: then the node looks for another relay.
func (k *parking) failed(ctx context.Context, m *atRelay, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() == nil {
		k.log.Debug("a relay does not keep a connection", "relay", m.name, "err", err)
		if m.parked > 0 {
			return false
		}
	}
	k.giveUp(m)
	return true
}

// await answers a relay until it says that another node is at the end of the connection.
func (k *parking) await(c net.Conn) error {
	for b := make([]byte, 1); ; {
		if err := c.SetDeadline(time.Now().Add(3 * k.every)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return err
		}
		if b[0] != parkAlive && b[0] != parkCall {
			return fmt.Errorf("the relay said %q", b)
		}
		if _, err := c.Write(b); err != nil {
			return err
		}
		if b[0] == parkCall {
			return c.SetDeadline(time.Time{})
		}
	}
}

// hand gives a connection to the server of the node.
func (k *parking) hand(ctx context.Context, c net.Conn) {
	select {
	case k.came <- c:
	case <-ctx.Done():
		cut(c)
	}
}

// rankRelays returns the nodes that may be relays of one, the best first: those that did
// not fail lately, control nodes, and then each node in an order of its own, so that not
// all use the same.
func rankRelays(all []member, self string, failed func(*member) bool) []member {
	var good []member
	for _, n := range all {
		if n.holds() && n.Addr != "" && n.Name != self {
			good = append(good, n)
		}
	}
	rank := func(n *member) int {
		h := fnv.New32a()
		_, _ = io.WriteString(h, self+" "+n.Name) // never fails
		r := int(h.Sum32() >> 8)
		if !n.Control {
			r += 1 << 24
		}
		if failed(n) {
			r += 1 << 25
		}
		return r
	}
	slices.SortFunc(good, func(a, b member) int { return cmp.Compare(rank(&a), rank(&b)) })
	return good
}

// parkListener is the listener of a node that has no address.
type parkListener struct {
	came   <-chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept implements [net.Listener].
func (l *parkListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.came:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *parkListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *parkListener) Addr() net.Addr { return parkAddr{} }

// parkAddr is the address of a node that has none.
type parkAddr struct{}

// Network implements [net.Addr].
func (parkAddr) Network() string { return "relay" }

// String implements [net.Addr].
func (parkAddr) String() string { return "relay" }
