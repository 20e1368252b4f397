package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

var (
	simNodes  = flag.Int("sim-nodes", 14, "nodes of TestSimulation")
	simLength = flag.Duration("sim-length", 45*time.Second, "simulated time of TestSimulation")
	simDaily  = flag.Int("sim-daily", 200_000, "runs a day of TestSimulation")
	simMean   = flag.Duration("sim-mean", 10*time.Second, "how long a run of TestSimulation goes on, on average")
	simFault  = flag.Duration("sim-fault", 4*time.Second, "time between two faults of TestSimulation")
	simSeed   = flag.Uint64("sim-seed", 1, "seed of TestSimulation")
)

// TestSimulation runs many nodes, with the code of real ones, on a simulated clock, store
// and network: runs start through all nodes while machines die, stop and are cut off, their
// clocks jump by hours and days, the store is away, and all nodes are upgraded. Nothing is executed twice, no start that was
// acknowledged is lost, no outcome is made up, no living node is declared lost, and the
// queue is fair.
func TestSimulation(t *testing.T) {
	dir := t.TempDir()
	if shm, err := os.MkdirTemp("/dev/shm", "spool-sim-"); err == nil { // a disk would be most of the time
		t.Cleanup(func() { _ = os.RemoveAll(shm) })
		dir = shm
	}
	began, cpu := time.Now(), cpuTime()
	synctest.Test(t, func(t *testing.T) {
		w := newSimWorld(t, dir)
		w.run()
		w.check()
		w.report()
	})
	t.Logf("the simulation took %v and %v of processors", time.Since(began).Round(time.Millisecond), (cpuTime() - cpu).Round(time.Millisecond))
	t.Logf("the detector of a control node needs %.2f %% of a core for %d nodes", 100*detectorLoad(*simNodes), *simNodes)
}

// simScarce is a pool with few nodes, for which more runs wait than it has room for.
const simScarce = "scarce"

// simWorld is a simulated cluster and what is known about it.
type simWorld struct {
	t      *testing.T
	ctx    context.Context
	key    Key
	timing Timing
	keep   time.Duration
	store  *simStore
	nodes  []*simNode
	byName map[string]*simNode
	began  time.Time

	mu       sync.Mutex
	executed map[spool.RunID]string // the node
	acked    map[spool.RunID]string // the node; empty if it was submitted
	recent   []spool.RunID          // acknowledged lately
	outcomes map[spool.RunID]spool.OutcomeKind
	turns    []simTurn // of the scarce pool, in the order of events
	wrong    []string
	starts   int
	refused  int
	unsure   int             // answers that nobody knows whether a run was started
	unknown  []time.Duration // from the death of a machine until it was lost, while the store answered
	lates    []time.Duration // the same, while the store or a control node was away for a part of that
	faults   map[string]int
	balance  []simBalance
	perMin   []int // starts of each minute
	msgs     []int64
	holes    time.Duration // how long the store was away, all in all
	awayAt   time.Time     // since when; the zero time if it is not
	lastAway time.Time     // when it, or a control node, was last away
	upgraded int
}

// simTurn is something that happened to a run of the scarce pool.
type simTurn struct {
	subject string
	start   bool // else a submit
}

// simBalance is how full nodes are: the share of their slots.
type simBalance struct{ mean, deviation, most float64 }

func newSimWorld(t *testing.T, dir string) *simWorld {
	w := &simWorld{
		t: t, key: NewKey(), timing: NewTiming(DefaultLease), keep: 10 * time.Minute, store: newSimStore(rand.New(rand.NewPCG(*simSeed, 2))), byName: make(map[string]*simNode),
		began: time.Now(), executed: make(map[spool.RunID]string), acked: make(map[spool.RunID]string), outcomes: make(map[spool.RunID]spool.OutcomeKind),
		faults: make(map[string]int),
	}
	w.store.wrote = w.wrote
	for i := range *simNodes {
		name := fmt.Sprintf("n%04d", i)
		n := &simNode{world: w, name: name, state: filepath.Join(dir, name), control: i < 3, slots: 32, labels: map[string]string{"kind": "general"}, net: new(simNet)}
		switch {
		case n.control:
			n.slots = 0
		case i < 6:
			n.labels, n.slots = map[string]string{"kind": simScarce, labelPool: simScarce}, 2
		}
		n.machine = &simMachine{world: w, name: name, clock: n.clock, runs: make(map[spool.RunID]*spool.Info), watchers: make(map[*simWatcher]bool)}
		if err := os.Mkdir(n.state, 0o700); err != nil {
			t.Fatal(err)
		}
		w.nodes, w.byName[name] = append(w.nodes, n), n
	}
	return w
}

// run lives through the simulated time.
func (w *simWorld) run() {
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	var background, load sync.WaitGroup
	background.Go(func() { w.store.tell(ctx) })
	for _, n := range w.nodes {
		if err := n.start("v1"); err != nil {
			w.t.Fatal(err)
		}
	}
	w.settle("v1")
	w.fairness()
	lctx, stop := context.WithTimeout(ctx, *simLength)
	load.Go(func() { w.load(lctx) })
	load.Go(func() { w.faulty(lctx) })
	load.Go(func() { w.upgrade(ctx) })
	load.Go(func() { w.observe(lctx) })
	load.Wait()
	stop()
	w.settle("")
	w.finish()
	cancel()
	for _, n := range w.nodes {
		if err := n.stop(); err != nil {
			w.t.Error(err)
		}
	}
	background.Wait()
}

// until waits until something holds.
func (w *simWorld) until(what string, holds func() bool) {
	for range 10_000 {
		if holds() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("never: %s", what)
}

// settle waits until every control node sees all nodes up.
func (w *simWorld) settle(build string) {
	w.until("all nodes up", func() bool {
		for _, n := range w.nodes[:3] {
			node, _ := n.running()
			all, _ := node.members.all()
			if len(all) != len(w.nodes) || slices.ContainsFunc(all, func(m member) bool { return m.State != nodeUp || build != "" && m.Build != build }) {
				return false
			}
		}
		return true
	})
}

// spec returns a run that goes on for some time.
func (w *simWorld) spec(id string, d time.Duration) spool.Spec {
	return spool.Spec{ID: spool.RunID(id), Argv: []string{"simulated"}, Labels: map[string]string{labelFor: d.String(), labelWant + "kind": "general"}}
}

// load starts runs until the context ends, with peaks of five times the mean.
func (w *simWorld) load(ctx context.Context) {
	var clients sync.WaitGroup
	defer clients.Wait()
	random := rand.New(rand.NewPCG(*simSeed, 1))
	mean := float64(24*time.Hour) / float64(*simDaily)
	for i := 0; ; i++ {
		gap := mean / 0.8 * random.ExpFloat64()
		if phase := time.Since(w.began) % (5 * time.Minute); phase < 15*time.Second {
			gap /= 5
		}
		pause(ctx, time.Duration(gap), nil)
		if ctx.Err() != nil {
			return
		}
		d := min(time.Duration(random.ExpFloat64()*float64(*simMean)), 3**simMean)
		spec := w.spec(fmt.Sprint("run", i), d)
		if i%20 == 0 {
			spec.Labels[LabelPool] = DefaultPool
		}
		askers := 1
		if i%10 == 0 { // two clients want the same
			askers = 2
		}
		for range askers {
			seed := random.Uint64()
			clients.Go(func() { w.client(spec, rand.New(rand.NewPCG(seed, 3))) })
		}
	}
}

// client starts a run, through any node, as often as it takes.
func (w *simWorld) client(spec spool.Spec, random *rand.Rand) {
	for range 60 {
		info, err := w.through(w.nodes[random.IntN(len(w.nodes))], spec)
		if err == nil {
			w.ack(&spec, &info)
			return
		}
		if errors.Is(err, spool.ErrExists) {
			w.fail("run %s: %v", spec.ID, err)
			return
		}
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused++
}

// through starts a run through a node, if that is up.
func (w *simWorld) through(n *simNode, spec spool.Spec) (spool.Info, error) {
	node, process := n.running()
	if cut, stopped := n.net.state(); node == nil || cut || stopped != nil {
		return spool.Info{}, errSimCut
	}
	ctx, cancel := context.WithTimeout(process, time.Minute)
	defer cancel()
	info, err := node.Backend().Start(ctx, spec)
	if process.Err() != nil { // nobody heard that
		err = errSimCut
	}
	return info, err
}

// ack notes that a client was told that a run was started, or waits.
func (w *simWorld) ack(spec *spool.Spec, info *spool.Info) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if info.Outcome != nil && info.Outcome.Kind == spool.Unknown { // its node claimed it and is lost
		w.unsure++
		return
	}
	if node, ok := w.acked[spec.ID]; ok && node != "" && info.Node != "" && node != info.Node {
		w.wrong = append(w.wrong, fmt.Sprintf("run %s is on node %s and on node %s", spec.ID, node, info.Node))
	} else if !ok {
		w.starts++
		w.recent = append(w.recent, spec.ID)
		minute := int(time.Since(w.began) / time.Minute)
		for len(w.perMin) <= minute {
			w.perMin = append(w.perMin, 0)
		}
		w.perMin[minute]++
	}
	if w.acked[spec.ID] == "" {
		w.acked[spec.ID] = info.Node
	}
}

// execute notes that a run was executed.
func (w *simWorld) execute(spec *spool.Spec, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if other, ok := w.executed[spec.ID]; ok {
		w.wrong = append(w.wrong, fmt.Sprintf("run %s was executed on node %s and on node %s", spec.ID, other, node))
	}
	w.executed[spec.ID] = node
	if spec.Labels[LabelPool] == simScarce {
		w.turns = append(w.turns, simTurn{spec.Labels[record.LabelSubject], true})
	}
}

// ended notes how a run ended.
func (w *simWorld) ended(_ string, info *spool.Info) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outcomes[info.ID] = info.Outcome.Kind
}
