package cluster

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

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
