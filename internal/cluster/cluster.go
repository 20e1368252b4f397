package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/mirror"
)

// Options configure a node.
type Options struct {
	State   string  // state directory
	Name    string  // of the node
	Addr    string  // where other nodes connect, HOST:PORT; empty if they cannot, and come through [Node.Listener]
	Socket  string  // where other nodes of this machine connect, as [SocketPath] says; empty if they do as all others
	Backend Backend // the runs of this machine
	Facts   Facts
	Key     Key         // seals what waits in the queue
	TLS     *tls.Config // of connections with other nodes; see [Key.TLS]
	Timing  Timing      // the zero value means that of DefaultLease
	// Judge has the node fence others that do not renew their leases.
	Judge   bool
	Control bool
	Build   string
	Labels  map[string]string
	Engines func() []string // what the machine can start, asked now and then; nil if that is not known
	Slots   int             // live runs at once; zero means that the node takes none
	Keep    time.Duration   // how long the store knows a run after its end; zero means DefaultKeep
	Queue   int             // runs that wait at once; zero means DefaultQueue
	Claim   time.Duration   // how long a start waits for the store; zero means DefaultClaim
	Archive Archive         // nil without one
	Tunnels int             // connections between other nodes that this one relays at once; zero means DefaultTunnels, less than zero none
	Parked  int             // connections at a relay for a node without an address; zero means DefaultParked
	// Archived reports whether the archive has a run; nil without one.
	Archived func(context.Context, spool.RunID) (bool, error)
	// Mirrors is how many other nodes copy the log of each run of this one while it
	// goes on, at most MaxMirrors.
	Mirrors     int
	MirrorBytes int64         // of the copies that this node makes; zero means mirror.DefaultBytes
	MirrorFree  int64         // bytes of the disk that copies leave free; zero means mirror.DefaultFree
	MirrorAge   time.Duration // since a copy was last written to, after which it is deleted; zero means never
	Log         *slog.Logger

	// connect reaches another node; nil means over TLS.
	connect func(ctx context.Context, addr string) (connection, error)
	crowd   int // how many nodes are a crowd; zero means defaultCrowd
	// clock is that of the machine, which people and programs set; nil means time.Now.
	// Nothing but what is told to people depends on it.
	clock func() time.Time
}

// Node is one machine of a cluster.
type Node struct {
	opts     Options
	identity *identity
	marks    *marks
	claims   *claims
	outbox   *outbox
	store    *store
	session  *session
	members  *members
	crowd    *crowd
	detector *detector
	peers    *peers
	relay    *relay
	near     *Near
	parking  *parking // nil if the node has an address
	mirrors  *peers   // to the copies of other nodes
	copies   *mirror.Copies
	copying  *copying
	owner    *Owner
	router   *Router
	tasks    *tasks
	cancel   context.CancelFunc
	unwatch  func()
	once     sync.Once
}

// Join makes this process a node of the cluster. It returns before the node holds its
// lease: a store without a majority makes starts wait, and nothing else.
func Join(o Options) (*Node, error) {
	if err := CheckNode(o.Name); err != nil {
		return nil, fmt.Errorf("join the cluster as %q: %w", o.Name, err)
	}
	if o.Mirrors < 0 || o.Mirrors > MaxMirrors {
		return nil, fmt.Errorf("join the cluster: %w: %d other nodes that copy each run: use 0 to %d", spool.ErrInvalid, o.Mirrors, MaxMirrors)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.Queue == 0 {
		o.Queue = DefaultQueue
	}
	if o.Claim == 0 {
		o.Claim = DefaultClaim
	}
	if o.Tunnels == 0 {
		o.Tunnels = DefaultTunnels
	}
	if o.Parked == 0 {
		o.Parked = DefaultParked
	}
	if o.clock == nil {
		o.clock = time.Now
	}
	if o.Timing == (Timing{}) {
		o.Timing = NewTiming(DefaultLease)
	}
	o.Timing.began = time.Now()
	if o.Engines != nil {
		o.Engines = rarely(o.Engines, o.Timing.TTL)
	}
	id, err := openIdentity(o.State, o.Name)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	n := &Node{opts: o, identity: id}
	if err := n.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("join the cluster: %w", err), n.closeFiles())
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.tasks, n.cancel = &tasks{ctx: ctx}, cancel
	n.members = newMembers(n.store)
	n.store.known = n.members.names
	n.crowd = &crowd{size: cmp.Or(o.crowd, defaultCrowd), facts: n.store, members: n.members, tasks: n.tasks, judge: o.Judge, begin: n.members.watch, looked: make(map[string]time.Time)}
	n.store.heard = n.crowd.hear
	n.relay, n.near = newRelay(&o, n.members), newNear(o.Socket)
	n.peers, n.mirrors = newPeers(&o, n.members, n.relay, ""), newPeers(&o, n.members, n.relay, CopiesPath)
	reg := newRegister(&o, n.store, n.claims)
	mirrors := newMirroring(&o, n.members, reg, n.mirrors)
	n.copying = newCopying(&o, n.copies, n.peers, n.members, n.store, n.tasks)
	n.session = newSession(n.store, id, o.Timing, o.Log, n.describe, reg.run)
	n.session.renewed = n.crowd.renewed
	if o.Addr == "" {
		n.parking = newParking(&o, n.members, n.session.hasten)
	}
	n.owner = &Owner{Backend: o.Backend, node: o.Name, facts: n.store, claims: n.claims, archive: o.Archive, session: n.session, register: reg, log: o.Log, tasks: n.tasks, patience: o.Claim, mirrors: mirrors, starting: make(map[spool.RunID]chan struct{})}
	reg.starting, reg.name, reg.outbox = n.owner.isStarting, n.owner.claimName, n.outbox
	n.router = &Router{self: o.Name, owner: n.owner, facts: n.store, members: n.members, crowd: n.crowd, peers: n.peers, mirrors: n.mirrors, copies: n.copies.Reader(o.Name), archive: o.Archive, absent: newAbsent(n.store, n.members), owners: make(map[spool.RunID]string)}
	n.owner.stat = n.router.Stat
	q := newQueue(&o, n.store, n.outbox, n.owner, n.members)
	q.every = n.crowd.every
	n.router.queue, reg.freed, reg.ended, n.session.told = q, q.wake, q.ended, q.wake
	n.detector = newDetector(n.store, o.Name, o.Timing, o.Log)
	n.detector.fenced = n.crowd.tell
	n.members.told = []func(nodeRecord, uint64){n.detector.saw, n.dropLost, n.learn}
	n.crowd.stop, err = n.members.watch()
	if err == nil {
		n.unwatch, err = q.watch()
	}
	if err != nil {
		n.crowd.end()
		cancel()
		return nil, errors.Join(err, n.closeFiles())
	}
	n.tasks.start(n.store.keep)
	n.tasks.start(n.session.keep)
	n.tasks.start(q.refresh)
	if o.Slots > 0 {
		n.tasks.start(q.take)
	}
	n.tasks.start(n.refresh)
	if n.parking != nil {
		n.tasks.start(n.parking.run)
	}
	if mirrors.on {
		n.tasks.start(mirrors.run)
	}
	n.copying.start()
	if _, ok := o.Backend.(holder); ok {
		n.tasks.start(n.owner.keepHeld)
	}
	if o.Judge {
		n.tasks.start(newSettler(q, o.Timing).run)
		n.tasks.start(func(ctx context.Context) { n.detector.run(ctx, n.members.load) })
	}
	return n, nil
}

// open opens what the node has on its disk beside its runs.
func (n *Node) open() (err error) {
	if n.marks, err = openMarks(n.opts.State); err != nil {
		return err
	}
	n.store = newStore(&n.opts, n.identity, n.marks)
	if n.claims, err = openClaims(n.opts.State, n.opts.Keep, n.opts.clock); err != nil {
		return err
	}
	if n.outbox, err = openOutbox(n.opts.State, n.store); err != nil {
		return err
	}
	n.copies, err = mirror.Open(mirror.Options{Dir: filepath.Join(n.opts.State, dirName, mirrorsDir), Bytes: n.opts.MirrorBytes, Free: n.opts.MirrorFree, Log: n.opts.Log})
	return err
}

// closeFiles closes what open opened.
func (n *Node) closeFiles() error {
	var errs []error
	if n.copies != nil {
		errs = append(errs, n.copies.Close())
	}
	if n.claims != nil {
		errs = append(errs, n.claims.close())
	}
	if n.marks != nil {
		errs = append(errs, n.marks.close())
	}
	return errors.Join(append(errs, n.identity.close())...)
}

// learn takes what another node knows about the store from its lease.
func (n *Node) learn(rec nodeRecord, _ uint64) {
	for part, rev := range rec.High {
		n.marks.saw(rec.Generation, part, rev)
	}
}

// dropLost ends the connection to a node that was fenced, so that a request that waits for an
// answer of it learns of it.
func (n *Node) dropLost(rec nodeRecord, _ uint64) {
	if !rec.holds() {
		n.peers.drop(rec.Name, nil)
		n.mirrors.drop(rec.Name, nil)
	}
}

// refresh reads all nodes now and then: a watch may miss something.
func (n *Node) refresh(ctx context.Context) {
	for ctx.Err() == nil {
		_, _, changed := n.store.state()
		lctx, cancel := context.WithTimeout(ctx, n.opts.Timing.TTL)
		err := n.members.load(lctx)
		cancel()
		if err == nil {
			err = errors.Join(n.identity.keepNodes(n.members.names()), n.crowd.listen())
		}
		if err != nil {
			pause(ctx, n.opts.Timing.Renew/5, nil)
			continue
		}
		pause(ctx, n.crowd.every(n.opts.Timing.TTL), changed)
	}
}

// describe fills in what the node says of itself.
func (n *Node) describe(rec *nodeRecord) {
	o := &n.opts
	rec.Addr, rec.Control, rec.Build, rec.Labels, rec.Slots = o.Addr, o.Control, o.Build, o.Labels, o.Slots
	rec.Cores, rec.Live = runtime.NumCPU(), n.owner.register.live()
	rec.Memory, rec.Free = memory()
	if n.parking != nil {
		rec.Relays = n.parking.names()
	}
	if o.Engines != nil {
		rec.Engines = o.Engines()
	}
}

// rarely returns a function that calls ask at most once in a period, and returns the last
// answer in between. Only one goroutine may call it.
func rarely(ask func() []string, period time.Duration) func() []string {
	var (
		asked time.Time
		last  []string
	)
	return func() []string {
		if asked.IsZero() || time.Since(asked) >= period {
			asked, last = time.Now(), ask()
		}
		return last
	}
}

// Backend returns the runs of the whole cluster.
func (n *Node) Backend() *Router { return n.router }

// Local returns the runs of this node, for the other nodes.
func (n *Node) Local() *Owner { return n.owner }

// Relay returns what this node does for connections between nodes: it is the relay of others,
// and tells those of its machine the way to [Node.Near]. Only other nodes may ask it, over
// connections with [Key.TLS].
func (n *Node) Relay() http.Handler {
	mux := n.relay.handler()
	mux.HandleFunc("POST "+nearPath, n.near.serveTicket)
	return mux
}

// Near returns the socket at which other nodes of this machine connect, for its server.
func (n *Node) Near() *Near { return n.near }

// Listener returns the connections of other nodes to one that has no address: they come
// through relays. It is nil if the node has one.
func (n *Node) Listener() net.Listener {
	if n.parking == nil {
		return nil
	}
	return &parkListener{came: n.parking.came, closed: make(chan struct{})}
}

// Copies returns the copies that this node has of runs of others, for the other nodes.
func (n *Node) Copies() *Copies { return &Copies{n.copies.Reader(n.opts.Name), n.copying} }

// Ready waits until the node holds its lease.
func (n *Node) Ready(ctx context.Context) error {
	_, err := n.session.await(ctx)
	return err
}

// Drain has this node take no new runs, or take them again. It returns when this node
// has heard of that, as all others have or will.
func (n *Node) Drain(ctx context.Context, on bool) error {
	want := nodeUp
	if on {
		want = nodeDraining
	}
	n.session.setState(want)
	for {
		changed := n.members.changes()
		if is, ok := n.members.get(n.opts.Name); ok && is.State == want {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("tell the cluster that this node is %s: %w", want, ErrUndecided)
		}
	}
}

// leaveTimeout bounds the last writes of a node that leaves.
const leaveTimeout = 5 * time.Second

// Leave gives the lease back: the node is gone and was not lost. It must have no live
// runs. What became of the others is in the store before.
func (n *Node) Leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if epoch, held := n.session.held(); held {
		if err := n.owner.register.settled(ctx, epoch); err != nil {
			return fmt.Errorf("leave the cluster: %w", err)
		}
	}
	return n.session.leave(ctx)
}

// Close ends the node. Runs go on, and the node is lost when its lease has passed,
// unless it comes back or has left.
func (n *Node) Close() error {
	var err error
	n.once.Do(func() {
		n.router.mu.Lock()
		n.router.closed = true
		n.router.mu.Unlock()
		n.cancel()
		n.unwatch()
		n.peers.close()
		n.relay.close()
		n.mirrors.close()
		n.tasks.wait()
		n.crowd.end()
		err = n.closeFiles()
	})
	return err
}
