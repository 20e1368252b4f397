package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// fewClaims is how many ids TestClaims has by default.
const fewClaims = 1000

var toClaim = flag.Int("claims", fewClaims, "number of ids of TestClaims")

// Sizes of a contest.
const (
	contenders = 6
	// rivals is how many contenders claim an id, at about the same time.
	rivals = 3
	// claimsAtOnce is how many ids a contender claims at once.
	claimsAtOnce = 24
	// claimsPerFault is after how many of them something is done to the store.
	claimsPerFault = 2500
)

// contest is three servers of the store, nodes that claim the same ids, and what these
// were told.
type contest struct {
	t      *testing.T
	stores *threeNodes
	nodes  []*contender
	reader *natsd.Facts
	random *rand.Rand // of the faults
	began  time.Time

	mu        sync.Mutex
	won       map[spool.RunID]string // which contender was told that it has an id
	history   []attempt              // certain answers
	undecided map[spool.RunID][]attempt
	doubts    int // answers that were not certain
}

// contender is a node that claims ids. It is in this process, and the store is not.
type contender struct {
	*cluster.Node
	name  string
	facts *natsd.Facts
	runs  *witness
	ids   chan spool.RunID
}

// TestClaims has six nodes claim the same ids, with the code that every start goes
// through, while the servers of the store are killed and stopped, up to all of them at
// once. In the end every id has one owner: the node that was told so, which alone
// executed it. The store has it once. If there are more ids than by default, it also has
// it after all of its servers were killed once more, and without any one of them. An
// answer that is not certain is no answer: the node asks again.
func TestClaims(t *testing.T) {
	t.Parallel()
	x := newContest(t)
	total := *toClaim
	var working sync.WaitGroup
	t.Cleanup(working.Wait)
	for i, c := range x.nodes {
		for range claimsAtOnce {
			working.Go(func() {
				for id := range c.ids {
					x.claim(i, id)
				}
			})
		}
	}
	working.Go(func() { x.feed(total) })
	faults := max(1, total/claimsPerFault)
	for i := range faults {
		x.await(total * (i + 1) / (faults + 1))
		x.fault(i)
	}
	x.await(total)
	working.Wait()
	took := time.Since(x.began).Round(time.Second)

	settled := x.read("the end of every run in the store", func(f runFact) bool { return f.State == "closed" })
	x.check(settled)
	for _, c := range x.nodes {
		if s := c.Status(); s.Generation != 1 {
			t.Errorf("node %s believes that the store went back in time", c.name)
		}
		c.close() // it could tell the store again what that has lost
	}
	same := func(f runFact) bool { return f == settled[f.ID] }
	x.read("the same without the nodes", same)
	if total > fewClaims {
		x.kill(x.stores.all()...)
		x.read("the same after a restart of the store", same)
		for _, m := range x.stores.all() {
			m.server.Kill()
			x.read("the same without server "+m.name, same)
			x.kill(m)
		}
	}
	t.Logf("%d ids claimed by %d nodes under %d faults in %v: %d certain answers, %d others", total, len(x.nodes), faults, took, len(x.history), x.doubts)
}

// newContest starts the store and the nodes.
func newContest(t *testing.T) *contest {
	x := &contest{t: t, random: rand.New(rand.NewPCG(*seed, 1)), won: make(map[spool.RunID]string), undecided: make(map[spool.RunID][]attempt)}
	polltest.Until(t, "three servers of the store", func() bool {
		x.stores = startCluster(t, servertest.Binary(t), tortureLease.String(), "a", "b", "c")
		return x.stores != nil
	})
	t.Cleanup(x.stores.end)
	x.reader = x.connect("reader")
	t.Cleanup(x.reader.Close)
	for i := range contenders {
		c := &contender{name: fmt.Sprint("n", i), runs: newWitness(), ids: make(chan spool.RunID, 4*claimsAtOnce)}
		patience := cluster.DefaultClaim
		if i%2 == 1 { // the store is without a leader for longer than that
			patience = time.Second
		}
		c.facts = x.connect(c.name)
		var err error
		c.Node, err = cluster.Join(cluster.Options{
			State: t.TempDir(), Name: c.name, Addr: "127.0.0.1:1", Backend: c.runs, Facts: c.facts, Key: x.stores.key, Timing: cluster.NewTiming(tortureLease), Claim: patience, Slots: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		x.nodes = append(x.nodes, c)
	}
	for _, c := range x.nodes {
		if err := c.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	x.began = time.Now()
	return x
}

// close ends the node. It may be called again.
func (c *contender) close() {
	_ = c.Close() // it may hold its lease no more
	c.facts.Close()
}

// connect connects to the store as a worker does.
func (x *contest) connect(name string) *natsd.Facts {
	x.t.Helper()
	config, err := x.stores.key.TLS(name)
	if err != nil {
		x.t.Fatal(err)
	}
	facts, err := natsd.Connect(natsd.Options{URL: x.stores.store, Name: name, TLS: config, Replicas: 3})
	if err != nil {
		x.t.Fatal(err)
	}
	return facts
}

// feed hands out all ids, each to some of the contenders. Some are told twice.
func (x *contest) feed(total int) {
	order := rand.New(rand.NewPCG(*seed, 2))
	for k := range total {
		id := spool.RunID(fmt.Sprint("id", k))
		for j, i := range order.Perm(contenders)[:rivals] {
			x.nodes[i].ids <- id
			if j == 0 && k%8 == 0 {
				x.nodes[i].ids <- id
			}
		}
	}
	for _, c := range x.nodes {
		close(c.ids)
	}
}

// elsewhere is the end of an answer to a node that came too late.
var elsewhere = regexp.MustCompile(`: node (\w+): another node has this run: `)

// claim has a contender claim an id until it has a certain answer.
func (x *contest) claim(i int, id spool.RunID) {
	c := x.nodes[i]
	for x.t.Context().Err() == nil {
		call := time.Since(x.began)
		info, err := c.Local().Start(x.t.Context(), spool.Spec{ID: id, Argv: []string{"true"}})
		a := attempt{client: i, run: id, start: true, call: call, answer: time.Since(x.began)}
		var owner []string
		if err != nil {
			owner = elsewhere.FindStringSubmatch(err.Error())
		}
		switch {
		case err == nil && info.ID == id:
			a.owner = c.name
			x.answered(a, true)
		case errors.Is(err, spool.ErrExists) && owner != nil:
			a.owner = owner[1]
			x.answered(a, false)
		case errors.Is(err, cluster.ErrUndecided):
			x.mu.Lock()
			x.undecided[id] = append(x.undecided[id], a)
			x.doubts++
			x.mu.Unlock()
			continue
		case x.t.Context().Err() == nil:
			x.t.Errorf("node %s claims %s: %+v, %v", c.name, id, info, err)
		}
		return
	}
}

// answered notes a certain answer.
func (x *contest) answered(a attempt, won bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.history = append(x.history, a)
	if !won {
		return
	}
	if other, ok := x.won[a.run]; ok && other != a.owner {
		x.t.Errorf("%s was claimed by %s, and by %s", a.run, other, a.owner)
	}
	x.won[a.run] = a.owner
}

// await waits until so many ids have an owner.
func (x *contest) await(ids int) {
	x.t.Helper()
	polltest.Until(x.t, fmt.Sprintf("%d ids with an owner", ids), func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.won) >= ids
	})
}

// check compares what the nodes were told with what they did, and with what the store
// has in the end.
func (x *contest) check(store map[spool.RunID]runFact) {
	executed := make(map[spool.RunID][]string)
	for _, c := range x.nodes {
		for info := range c.runs.List(x.t.Context(), spool.Filter{}) {
			executed[info.ID] = append(executed[info.ID], c.name)
		}
	}
	for id, owner := range x.won {
		if !slices.Equal(executed[id], []string{owner}) {
			x.t.Errorf("%s, which %s has claimed, was executed by %v", id, owner, executed[id])
		}
		delete(executed, id)
	}
	for id, by := range executed {
		x.t.Errorf("%s was executed by %v, and nobody was told", id, by)
	}
	certain := slices.DeleteFunc(slices.Clone(x.history), x.isTakenBack)
	if len(certain) < len(x.history)/2 {
		x.t.Errorf("of %d certain answers only %d are about claims that were kept", len(x.history), len(certain))
	}
	for id := range x.won {
		end := time.Since(x.began)
		certain = append(certain, attempt{client: contenders, run: id, call: end, answer: end, owner: store[id].Node})
	}
	for _, wrong := range checkHistory(certain) {
		x.t.Error(wrong)
	}
}

// isTakenBack reports whether an answer is about a claim of a node that was given no
// certain answer, and took it back.
func (x *contest) isTakenBack(a attempt) bool {
	return a.owner != x.won[a.run] && slices.ContainsFunc(x.undecided[a.run], func(u attempt) bool {
		return x.nodes[u.client].name == a.owner && u.call < a.answer
	})
}

// runFact is the fact about a run, as the store has it.
type runFact struct {
	ID    spool.RunID
	Node  string
	State string
	Epoch uint64
	rev   uint64
}

// read reads all facts about runs until they are as they should be: each once, with its
// owner.
func (x *contest) read(what string, right func(runFact) bool) map[spool.RunID]runFact {
	x.t.Helper()
	var all map[spool.RunID]runFact
	var wrong []string
	ok := polltest.Holds(func() bool {
		var err error
		all, wrong, err = x.readOnce(right)
		if err != nil {
			wrong = []string{err.Error()}
		}
		return len(wrong) == 0
	})
	if !ok {
		x.t.Errorf("%s: %d are wrong: %q", what, len(wrong), wrong[:min(len(wrong), 20)])
	}
	return all
}

// readOnce reads all facts about runs, and says what is wrong. A server that has just
// begun to lead may not have all at once.
func (x *contest) readOnce(right func(runFact) bool) (all map[spool.RunID]runFact, wrong []string, err error) {
	ctx, cancel := context.WithTimeout(x.t.Context(), 20*time.Second)
	defer cancel()
	all = make(map[spool.RunID]runFact)
	for f, err := range x.reader.All(ctx, "run.") {
		if err != nil {
			return nil, nil, err
		}
		is := runFact{rev: f.Rev}
		if err := json.Unmarshal(f.Data, &is); err != nil {
			return nil, nil, err
		}
		before, twice := all[is.ID]
		if owner := x.won[is.ID]; twice || is.Node != owner || f.Key != "run."+string(is.ID) || !right(is) {
			wrong = append(wrong, fmt.Sprintf("the owner of %s is %q, and %s is %+v, %+v", is.ID, owner, f.Key, is, before))
		}
		all[is.ID] = is
	}
	for id := range x.won {
		if _, ok := all[id]; !ok {
			wrong = append(wrong, fmt.Sprint("there is no ", id))
		}
	}
	return all, wrong, nil
}
