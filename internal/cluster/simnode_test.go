package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
)

// labelFor says how long a simulated run goes on.
const labelFor = "sim.for"

// simNet is how a machine is reached.
type simNet struct {
	mu      sync.Mutex
	cut     bool
	stopped chan struct{} // closed when the machine goes on; nil while it does
	cuts    atomic.Uint64
}

// state returns whether the machine is cut off, and a channel that is closed when a
// stopped machine goes on, which is nil if it was not stopped.
func (n *simNet) state() (cut bool, stopped <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut, n.stopped
}

// await waits while the machine is stopped.
func (n *simNet) await(ctx, process context.Context) {
	if _, stopped := n.state(); stopped != nil {
		select {
		case <-stopped:
		case <-ctx.Done():
		case <-process.Done():
		}
	}
}

// setCut cuts the machine off, or ends that.
func (n *simNet) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut = cut; cut {
		n.cuts.Add(1)
	}
}

// setStopped stops the machine, or has it go on.
func (n *simNet) setStopped(stopped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case stopped && n.stopped == nil:
		n.stopped = make(chan struct{})
	case !stopped && n.stopped != nil:
		close(n.stopped)
		n.stopped = nil
	}
}

// simMachine is the runs of a simulated machine. It outlives the process of its node, as
// a keeper does.
type simMachine struct {
	world *simWorld
	name  string
	clock func() time.Time

	mu       sync.Mutex
	runs     map[spool.RunID]*spool.Info
	watchers map[*simWatcher]bool
}

// simWatcher is told of changes of runs.
type simWatcher struct {
	infos []spool.Info
	more  chan struct{}
}

// start executes a run.
func (m *simMachine) start(spec *spool.Spec) (spool.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.runs[spec.ID]; old != nil {
		return *old, nil
	}
	d, err := time.ParseDuration(spec.Labels[labelFor])
	if err != nil {
		return spool.Info{}, err
	}
	m.world.execute(spec, m.name)
	info := &spool.Info{ID: spec.ID, Engine: spool.EngineProcess, Labels: spec.Labels, Argv: spec.Argv, Created: m.clock(), State: spool.StateRunning, Pid: 1}
	m.runs[spec.ID] = info
	m.tell(info)
	time.AfterFunc(d, func() { m.end(spec.ID, spool.Outcome{Kind: spool.Exited}) })
	return *info, nil
}

// end ends a run.
func (m *simMachine) end(id spool.RunID, outcome spool.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endLocked(m.runs[id], outcome)
}

func (m *simMachine) endLocked(info *spool.Info, outcome spool.Outcome) {
	if info == nil || info.State == spool.StateClosed {
		return
	}
	info.State, info.Ended, info.Outcome = spool.StateClosed, m.clock(), &outcome
	m.tell(info)
	m.world.ended(m.name, info)
	time.AfterFunc(m.world.keep, func() { // its retention
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.runs, info.ID)
	})
}

// die ends all runs, as a machine does that dies: nobody knows how they ended.
func (m *simMachine) die() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, info := range m.runs {
		m.endLocked(info, spool.Outcome{Kind: spool.Unknown, Reason: "the machine died"})
	}
}

// tell tells of a change. The caller holds m.mu.
func (m *simMachine) tell(info *spool.Info) {
	for w := range m.watchers {
		w.infos = append(w.infos, *info)
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
}

// live returns how many runs go on.
func (m *simMachine) live() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, info := range m.runs {
		if info.State != spool.StateClosed {
			n++
		}
	}
	return n
}

// simBackend is the runs of a machine for one process of its node.
type simBackend struct {
	Backend
	machine *simMachine
	ctx     context.Context // of the process
}

// Start implements [spool.Backend].
func (b *simBackend) Start(_ context.Context, spec spool.Spec) (spool.Info, error) {
	if b.ctx.Err() != nil { // it is dead
		return spool.Info{}, spool.ErrClosed
	}
	return b.machine.start(&spec)
}

// Stat implements [spool.Backend].
func (b *simBackend) Stat(_ context.Context, id spool.RunID) (spool.Info, error) {
	b.machine.mu.Lock()
	defer b.machine.mu.Unlock()
	if info := b.machine.runs[id]; info != nil {
		return *info, nil
	}
	return spool.Info{}, fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
}

// Control implements [spool.Backend]: every control ends the run.
func (b *simBackend) Control(_ context.Context, id spool.RunID, _ spool.Control) error {
	b.machine.end(id, spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"})
	return nil
}

// List implements [spool.Backend].
func (b *simBackend) List(_ context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		b.machine.mu.Lock()
		infos := slices.Collect(maps.Values(b.machine.runs))
		b.machine.mu.Unlock()
		for _, info := range infos {
			if f.Match(info) && !yield(*info, nil) {
				return
			}
		}
	}
}

// Watch implements [spool.Watcher].
func (b *simBackend) Watch(ctx context.Context, _ spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		w := &simWatcher{more: make(chan struct{}, 1)}
		b.machine.mu.Lock()
		for _, info := range b.machine.runs {
			if info.State != spool.StateClosed {
				w.infos = append(w.infos, *info)
			}
		}
		b.machine.watchers[w] = true
		b.machine.mu.Unlock()
		defer func() {
			b.machine.mu.Lock()
			defer b.machine.mu.Unlock()
			delete(b.machine.watchers, w)
		}()
		for {
			b.machine.mu.Lock()
			infos := w.infos
			w.infos = nil
			b.machine.mu.Unlock()
			for _, info := range infos {
				if !yield(info, nil) {
					return
				}
			}
			select {
			case <-w.more:
			case <-ctx.Done():
				yield(spool.Info{}, context.Cause(ctx))
				return
			}
		}
	}
}

// simNode is a machine of the simulated cluster and the process of its node.
type simNode struct {
	world   *simWorld
	name    string
	state   string // directory
	control bool
	slots   int
	labels  map[string]string
	machine *simMachine
	net     *simNet
	off     atomic.Int64 // by how much the clock of the machine is wrong
	link    *simLink

	mu      sync.Mutex
	node    *Node // nil while the process is down
	process context.Context
	end     context.CancelFunc
	faulty  bool      // something is being done to it
	out     time.Time // since when it cannot be reached; zero if it can
	back    time.Time // when it could be reached again
	renewed time.Time // when it last wrote its lease
}

// start starts the process of the node.
func (n *simNode) start(build string) error {
	process, end := context.WithCancel(n.world.ctx)
	link := &simLink{store: n.world.store, ctx: process, net: n.net}
	node, err := Join(Options{
		State: n.state, Name: n.name, Addr: n.name, Backend: &simBackend{machine: n.machine, ctx: process}, Facts: link, Key: n.world.key, Timing: n.world.timing,
		Judge: n.control, Control: n.control, Build: build, Labels: n.labels, Engines: func() []string { return []string{spool.EngineProcess} },
		Slots: n.slots, Keep: n.world.keep, crowd: min(defaultCrowd, *simNodes/2), clock: n.clock, connect: func(ctx context.Context, addr string) (connection, error) { return n.dial(ctx, addr) },
	})
	if err != nil {
		end()
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.node, n.process, n.end, n.link = node, process, end, link
	return nil
}

// clock is that of the machine.
func (n *simNode) clock() time.Time { return time.Now().Round(0).Add(time.Duration(n.off.Load())) }

// stop ends the process of the node, as kill -9 does: it writes nothing more.
func (n *simNode) stop() error {
	n.mu.Lock()
	node, end := n.node, n.end
	n.node = nil
	n.mu.Unlock()
	if node == nil {
		return nil
	}
	end()
	return node.Close()
}

// running returns the process of the node; nil if it is down.
func (n *simNode) running() (*Node, context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.node, n.process
}

// reserve has nobody else do something to the node. It reports false if somebody does.
func (n *simNode) reserve() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	ok := !n.faulty
	n.faulty = true
	return ok
}

func (n *simNode) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faulty = false
}

// unreachable notes that nobody reaches the node from now on, or that they do again.
func (n *simNode) unreachable(now bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now {
		n.out = time.Now()
	} else {
		n.back, n.out = time.Now(), time.Time{}
	}
}

// isOut reports whether the node cannot be reached.
func (n *simNode) isOut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.out.IsZero()
}

// simPeer is a connection between two nodes.
type simPeer struct {
	Backend
	from, to *simNode
	ctx      context.Context // ends with the connection
	end      context.CancelFunc
}

var errSimCut = errors.New("the connection is cut")

// dial connects to another node.
func (n *simNode) dial(ctx context.Context, name string) (connection, error) {
	to := n.world.byName[name]
	pause(ctx, 2*n.world.store.latency(), nil)
	_, process := to.running()
	cut, stopped := to.net.state()
	mine, _ := n.net.state()
	if cut || mine || stopped != nil {
		<-ctx.Done()
		return nil, errSimCut
	}
	if process == nil || process.Err() != nil {
		return nil, errors.New("connection refused")
	}
	c, end := context.WithCancel(process)
	return &simPeer{from: n, to: to, ctx: c, end: end}, nil
}

// Close implements [connection].
func (p *simPeer) Close() error {
	p.end()
	return nil
}

// call does something at the other node. If the connection is lost, nobody hears the
// answer.
func (p *simPeer) call(ctx context.Context, do func(ctx context.Context, b Backend) error) error {
	cctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	if !p.travel(cctx) {
		return p.lost(ctx)
	}
	node, _ := p.to.running()
	if node == nil {
		return p.lost(ctx)
	}
	err := do(cctx, node.Local())
	if !p.travel(cctx) {
		return p.lost(ctx)
	}
	return err
}

// travel takes as long as a message. It reports false if the connection is lost.
func (p *simPeer) travel(ctx context.Context) bool {
	p.to.net.await(ctx, ctx)
	p.from.net.await(ctx, ctx)
	pause(ctx, p.to.world.store.latency(), nil)
	cut, _ := p.to.net.state()
	mine, _ := p.from.net.state()
	if cut || mine { // until the connection is found dead
		pause(ctx, 4*time.Second, nil)
		p.end()
		return false
	}
	return ctx.Err() == nil
}

func (p *simPeer) lost(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &client.DisconnectedError{Err: cmp.Or(context.Cause(p.ctx), errSimCut)}
}

// Start implements [spool.Backend].
func (p *simPeer) Start(ctx context.Context, spec spool.Spec) (info spool.Info, err error) {
	err = p.call(ctx, func(ctx context.Context, b Backend) (err error) {
		info, err = b.Start(ctx, spec)
		return err
	})
	return info, err
}

// Stat implements [spool.Backend].
func (p *simPeer) Stat(ctx context.Context, id spool.RunID) (info spool.Info, err error) {
	err = p.call(ctx, func(ctx context.Context, b Backend) (err error) {
		info, err = b.Stat(ctx, id)
		return err
	})
	return info, err
}
