package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// Options configure a node.
type Options struct {
	State   string  // state directory
	Name    string  // of the node
	Addr    string  // where other nodes connect, HOST:PORT
	Backend Backend // the runs of this machine
	Facts   Facts
	TLS     *tls.Config // of connections with other nodes; see [Key.TLS]
	Timing  Timing
	// Judge has the node fence others that do not renew their leases.
	Judge   bool
	Control bool
	Build   string
	Labels  map[string]string
	Engines func() []string // what the machine can start; nil if that is not known
	Slots   int             // live runs at once; zero means that the node takes none
	Keep    time.Duration   // how long the store knows a run after its end; zero means DefaultKeep
	Claim   time.Duration   // how long a start waits for the store; zero means DefaultClaim
	Archive Archive         // nil without one
	Log     *slog.Logger
}

// Node is one machine of a cluster.
type Node struct {
	opts     Options
	identity *identity
	session  *session
	members  *members
	detector *detector
	peers    *peers
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
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Keep == 0 {
		o.Keep = DefaultKeep
	}
	if o.Claim == 0 {
		o.Claim = DefaultClaim
	}
	id, err := openIdentity(o.State, o.Name)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{opts: o, identity: id, tasks: &tasks{ctx: ctx}, cancel: cancel}
	n.members = newMembers(o.Facts)
	n.peers = newPeers(o.TLS, n.members)
	reg := newRegister(o.Name, o.Facts, o.Backend, o.Keep, o.Log)
	n.session = newSession(o.Facts, id, o.Timing, o.Log, n.describe, reg.run)
	n.owner = &Owner{Backend: o.Backend, node: o.Name, facts: o.Facts, session: n.session, register: reg, log: o.Log, tasks: n.tasks, patience: o.Claim}
	n.router = &Router{self: o.Name, owner: n.owner, facts: o.Facts, members: n.members, peers: n.peers, archive: o.Archive, owners: make(map[spool.RunID]string)}
	n.owner.stat = n.router.Stat
	n.detector = newDetector(o.Facts, o.Name, o.Timing, o.Log)
	n.unwatch, err = n.members.watch(n.detector.saw, n.dropLost)
	if err != nil {
		cancel()
		return nil, errors.Join(err, id.close())
	}
	n.tasks.start(n.session.keep)
	n.tasks.start(n.refresh)
	if o.Judge {
		n.tasks.start(func(ctx context.Context) { n.detector.run(ctx, n.members.load) })
	}
	return n, nil
}

// dropLost ends the connection to a node that was fenced, so that whoever waits for an
// answer of it learns of it.
func (n *Node) dropLost(rec nodeRecord, _ uint64) {
	if !rec.holds() {
		n.peers.drop(rec.Name, nil)
	}
}

// refresh reads all nodes now and then: a watch may miss something.
func (n *Node) refresh(ctx context.Context) {
	for ctx.Err() == nil {
		lctx, cancel := context.WithTimeout(ctx, n.opts.Timing.TTL)
		err := n.members.load(lctx)
		cancel()
		if err != nil {
			pause(ctx, n.opts.Timing.Renew/5, nil)
			continue
		}
		pause(ctx, n.opts.Timing.TTL, nil)
	}
}

// describe fills in what the node says of itself.
func (n *Node) describe(rec *nodeRecord) {
	o := &n.opts
	rec.Addr, rec.Control, rec.Build, rec.Labels, rec.Slots = o.Addr, o.Control, o.Build, o.Labels, o.Slots
	rec.Cores, rec.Live = runtime.NumCPU(), n.owner.register.live()
	rec.Memory, rec.Free = memory()
	if o.Engines != nil {
		rec.Engines = o.Engines()
	}
}

// Backend returns the runs of the whole cluster.
func (n *Node) Backend() *Router { return n.router }

// Local returns the runs of this node, for the other nodes.
func (n *Node) Local() *Owner { return n.owner }

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
		_, changed := n.members.all()
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

// leaveTimeout bounds the last write of a node that leaves.
const leaveTimeout = 5 * time.Second

// Leave gives the lease back: the node is gone and was not lost. It must have no live
// runs.
func (n *Node) Leave(ctx context.Context) error {
	if live := n.owner.register.live(); live > 0 {
		return fmt.Errorf("leave the cluster: %w: %d runs of this node have not ended", spool.ErrBusy, live)
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
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
		n.tasks.wait()
		err = n.identity.close()
	})
	return err
}
