package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
// and network: runs start through all nodes while machines die, stop and are cut off, the
// store is away, and all nodes are upgraded. Nothing is executed twice, no start that was
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
		n.machine = &simMachine{world: w, name: name, runs: make(map[spool.RunID]*spool.Info), watchers: make(map[*simWatcher]bool)}
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

func (w *simWorld) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// fairness has one subject submit many runs to a pool with little room, and two others
// fewer after it: they take turns.
func (w *simWorld) fairness() {
	submit := func(subject string, count int) {
		for i := range count {
			spec := w.spec(fmt.Sprint("turn", subject, i), 2*time.Second)
			spec.Labels[LabelPool], spec.Labels[labelWant+"kind"], spec.Labels[record.LabelSubject] = simScarce, simScarce, subject
			info, err := w.through(w.nodes[i%3], spec)
			if err != nil {
				w.t.Fatal(err)
			}
			w.mu.Lock()
			w.turns = append(w.turns, simTurn{subject, false})
			w.mu.Unlock()
			w.ack(&spec, &info)
		}
	}
	submit("many", 60)
	submit("some", 12)
	submit("few", 6)
	w.until("the runs of the scarce pool", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.turns) == 2*(60+12+6)
	})
	// While others wait, nobody is served more often than they are, but for what the
	// three nodes decide at the same time.
	const slack = 4
	waits, served := make(map[string]int), make(map[string]int)
	for _, t := range w.turns {
		if !t.start {
			if waits[t.subject]++; waits[t.subject] == 1 {
				clear(served) // from now on
			}
			continue
		}
		waits[t.subject]--
		served[t.subject]++
		for other, n := range waits {
			if n > 0 && served[t.subject] > served[other]+slack {
				w.t.Errorf("the queue has served subject %s %d times and %s %d times, which has %d runs waiting", t.subject, served[t.subject], other, served[other], n)
			}
		}
	}
}

// faulty does something bad now and then, until the context ends, and undoes it.
func (w *simWorld) faulty(ctx context.Context) {
	var undo sync.WaitGroup
	defer undo.Wait()
	random := rand.New(rand.NewPCG(*simSeed, 5))
	kinds := []string{"machine killed", "server killed", "stopped", "cut off", "cut off for a moment", "leader of the store killed", "machine killed", "store away", "rack killed"}
	for i := 0; ; i++ {
		pause(ctx, time.Duration(random.Float64()*2*float64(*simFault)), nil)
		if ctx.Err() != nil {
			return
		}
		kind := kinds[i%len(kinds)]
		victims, long := 1, time.Duration(20+random.IntN(40))*time.Second
		if kind == "rack killed" {
			victims = max(2, len(w.nodes)/25)
		}
		w.mu.Lock()
		w.faults[kind]++
		w.mu.Unlock()
		switch kind {
		case "leader of the store killed": // how long the election takes
			undo.Go(func() { w.away(4*time.Second+long/8, false) })
			continue
		case "store away":
			undo.Go(func() { w.away(long/2, true) })
			continue
		}
		at := random.IntN(len(w.nodes))
		for range victims {
			n := w.nodes[at%len(w.nodes)]
			if at++; n.reserve() {
				undo.Go(func() { w.fault(n, kind, long) })
			}
		}
	}
}

// away has the store not answer for some time.
func (w *simWorld) away(d time.Duration, cut bool) {
	if w.store.away() != nil {
		return
	}
	w.mu.Lock()
	w.awayAt = time.Now()
	w.mu.Unlock()
	w.store.outage(w.ctx, d, cut)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holes += time.Since(w.awayAt)
	w.awayAt, w.lastAway = time.Time{}, time.Now()
}

// fault does something to a node and undoes it.
func (w *simWorld) fault(n *simNode, kind string, long time.Duration) {
	defer n.release()
	restart := func() {
		if err := n.start("v2"); err != nil {
			w.fail("node %s does not start: %v", n.name, err)
		}
		n.unreachable(false)
	}
	n.unreachable(true)
	if n.control { // its detector begins anew
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.lastAway = time.Now()
		}()
	}
	switch kind {
	case "machine killed", "rack killed":
		if err := n.stop(); err != nil {
			w.fail("node %s: %v", n.name, err)
		}
		n.machine.die()
		pause(w.ctx, long, nil)
		restart()
	case "server killed":
		if err := n.stop(); err != nil {
			w.fail("node %s: %v", n.name, err)
		}
		pause(w.ctx, 2*time.Second, nil)
		restart()
	case "stopped":
		n.net.setStopped(true)
		pause(w.ctx, long, nil)
		n.net.setStopped(false)
		n.unreachable(false)
	case "cut off", "cut off for a moment":
		if kind != "cut off" {
			long /= 10
		}
		n.net.setCut(true)
		pause(w.ctx, long, nil)
		n.net.setCut(false)
		n.unreachable(false)
	}
}

// upgrade restarts the server of every node, the control nodes one after another and
// then others a few at a time.
func (w *simWorld) upgrade(ctx context.Context) {
	pause(ctx, *simLength/3, nil)
	atOnce := make(chan struct{}, max(2, len(w.nodes)/50))
	var all sync.WaitGroup
	defer all.Wait()
	for _, n := range w.nodes {
		for !n.reserve() {
			pause(ctx, time.Second, nil)
			if ctx.Err() != nil {
				return
			}
		}
		atOnce <- struct{}{}
		one := func() {
			w.fault(n, "server killed", 0)
			w.mu.Lock()
			w.upgraded++
			w.mu.Unlock()
			<-atOnce
		}
		if n.control {
			one()
			pause(ctx, w.timing.Renew, nil)
		} else {
			all.Go(one)
		}
	}
}

// observe notes now and then how full the nodes are, and how many messages the store has
// had.
func (w *simWorld) observe(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, 10*time.Second, nil)
		var b simBalance
		var shares []float64
		for _, n := range w.nodes[6:] {
			if node, _ := n.running(); node != nil {
				shares = append(shares, float64(n.machine.live())/float64(n.slots))
			}
		}
		for _, s := range shares {
			b.mean += s / float64(len(shares))
			b.most = max(b.most, s)
		}
		for _, s := range shares {
			b.deviation += (s - b.mean) * (s - b.mean) / float64(len(shares))
		}
		b.deviation = math.Sqrt(b.deviation)
		w.store.mu.Lock()
		msgs := w.store.writes + w.store.reads
		w.store.mu.Unlock()
		w.mu.Lock()
		w.balance, w.msgs = append(w.balance, b), append(w.msgs, msgs)
		w.mu.Unlock()
	}
}

// wrote looks at every fact that is written: only a node that has not renewed its lease
// for the time of one may be declared lost, and only if that is its own fault.
func (w *simWorld) wrote(f Fact) {
	if prefixOf(f.Key) != nodePrefix {
		return
	}
	n := w.byName[strings.TrimPrefix(f.Key, nodePrefix)]
	if !isLoss(f) {
		n.mu.Lock()
		n.renewed = time.Now()
		n.mu.Unlock()
		return
	}
	n.mu.Lock()
	quiet, out, reached := time.Since(n.renewed), n.out, n.out.IsZero() && n.back.Before(n.renewed)
	n.mu.Unlock()
	if quiet < w.timing.TTL-time.Second || reached {
		rec, _ := leaseOf(f)
		w.fail("node %s was declared lost by %s %v after its last renewal; it could be reached: %t", rec.Name, rec.By, quiet, reached)
		return
	}
	judged := !slices.ContainsFunc(w.nodes[:3], (*simNode).isOut)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case out.IsZero() || time.Since(out) < w.timing.TTL-w.timing.Renew: // it was out before that, too
	case judged && w.awayAt.IsZero() && w.lastAway.Add(3*w.timing.Renew).Before(out): // detectors see again
		w.unknown = append(w.unknown, time.Since(out))
	default:
		w.lates = append(w.lates, time.Since(out))
	}
}

// finish waits until everything has ended that was started, and nothing waits.
func (w *simWorld) finish() {
	w.until("everything ended", func() bool {
		w.mu.Lock()
		done := len(w.outcomes) == len(w.executed)
		w.mu.Unlock()
		for _, n := range w.nodes[:3] {
			node, _ := n.running()
			node.router.queue.mu.Lock()
			done = done && len(node.router.queue.waiting) == 0
			node.router.queue.mu.Unlock()
		}
		for _, n := range w.nodes {
			node, _ := n.running()
			node.owner.register.mu.Lock()
			done = done && len(node.owner.register.runs) == 0
			node.owner.register.mu.Unlock()
		}
		return done
	})
	// Any node says of the runs that were started lately what became of them.
	random := rand.New(rand.NewPCG(*simSeed, 4))
	w.mu.Lock()
	recent := slices.Clone(w.recent[max(0, len(w.recent)-200):])
	w.mu.Unlock()
	for _, id := range recent {
		node, process := w.nodes[random.IntN(len(w.nodes))].running()
		info, err := node.Backend().Stat(process, id)
		if errors.Is(err, spool.ErrNotFound) { // it ended long ago
			continue
		}
		if err != nil || info.Node != w.executed[id] || info.Outcome == nil || info.Outcome.Kind != w.outcomes[id] {
			w.fail("run %s of node %s with the outcome %s is %+v, %v", id, w.executed[id], w.outcomes[id], info, err)
		}
	}
}

// check compares what clients were told with what happened.
func (w *simWorld) check() {
	for _, wrong := range w.wrong[:min(len(w.wrong), 20)] {
		w.t.Error(wrong)
	}
	lost := 0
	for id, node := range w.acked {
		if ran, ok := w.executed[id]; !ok || node != "" && ran != node {
			lost++
			if lost < 10 {
				w.t.Errorf("run %s was acknowledged by node %q and executed by %q", id, node, ran)
			}
		}
	}
	if w.upgraded != len(w.nodes) {
		w.t.Errorf("%d of %d nodes were upgraded", w.upgraded, len(w.nodes))
	}
	if w.starts == 0 || len(w.unknown)+len(w.lates) == 0 {
		w.t.Errorf("%d starts, %d nodes lost: too few to say anything", w.starts, len(w.unknown)+len(w.lates))
	}
	for _, d := range w.unknown {
		if d > w.timing.TTL+w.timing.Renew {
			w.t.Errorf("a node was lost %v after it was out", d)
		}
	}
}

// report says what was measured.
func (w *simWorld) report() {
	t, seconds := w.t, time.Since(w.began).Seconds()
	s := w.store
	t.Logf("%d nodes, %v: %d starts acknowledged (%.1f/s, %d in the busiest minute), %d answered with unknown, %d given up by their client, %d executed, faults %v, the store away for %v",
		len(w.nodes), time.Duration(seconds*float64(time.Second)).Round(time.Second), w.starts, float64(w.starts)/seconds, slices.Max(w.perMin), w.unsure, w.refused, len(w.executed), w.faults, w.holes.Round(time.Second))
	busiest := int64(0)
	for i := 1; i < len(w.msgs); i++ {
		busiest = max(busiest, w.msgs[i]-w.msgs[i-1])
	}
	t.Logf("requests to the store: %.0f/s written, %.0f/s read, %.0f/s in the busiest 10 s; it sent %.0f/s facts of lists and told %.0f/s writes to watchers, %.0f/s messages",
		float64(s.writes)/seconds, float64(s.reads)/seconds, float64(busiest)/10, float64(s.listed)/seconds, float64(s.tells)/seconds, float64(s.told)/seconds)
	t.Logf("until a node was lost: %s; with the store or a control node away for a part of that: %s", quantiles(w.unknown), quantiles(w.lates))
	var b simBalance
	for _, x := range w.balance {
		b.mean, b.deviation, b.most = b.mean+x.mean/float64(len(w.balance)), b.deviation+x.deviation/float64(len(w.balance)), max(b.most, x.most)
	}
	t.Logf("how full nodes are: %.1f %% on average, standard deviation %.1f %%, the fullest ever %.1f %%", 100*b.mean, 100*b.deviation, 100*b.most)
}

// quantiles describes durations.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("%d times, p50 %v, max %v", len(all), all[len(all)/2].Round(10*time.Millisecond), all[len(all)-1].Round(10*time.Millisecond))
}

// detectorLoad measures what part of a core the detector of a control node needs.
func detectorLoad(nodes int) float64 {
	timing := NewTiming(DefaultLease)
	d := newDetector(nil, "n0", timing, nil)
	recs := make([]Fact, nodes)
	for i := range recs {
		rec := nodeRecord{Version: 1, Name: fmt.Sprint("n", i), ID: newNonce(), Epoch: 1, State: nodeUp, Nonce: newNonce(), Addr: "10.0.0.1:7777", Slots: 32,
			Engines: []string{"process", "kernel", "sandbox"}, Labels: map[string]string{"kind": "general"}, High: map[string]uint64{"node": 1, "run": 1, "queue": 1}}
		recs[i] = Fact{Key: nodePrefix + rec.Name, Data: encode(&rec)}
	}
	const rounds = 20
	began := cpuTime()
	for round := range rounds { // one renewal of every node, and the looks in that time
		for _, f := range recs {
			if rec, ok := leaseOf(f); ok {
				d.saw(rec, uint64(round+1))
			}
		}
		for range 5 {
			d.silent(timing.Renew / 5)
		}
	}
	return (cpuTime() - began).Seconds() / (rounds * timing.Renew.Seconds())
}
