package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/disktest"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

var (
	faults = flag.Int("faults", 5, "number of faults of TestTorture")
	seed   = flag.Uint64("seed", 1, "seed of the faults of TestTorture")
)

// tortureLease is the lease of the nodes that are tortured.
const tortureLease = 3 * time.Second

// tortured is a node that is reached through proxies: to the store, and from the other
// nodes.
type tortured struct {
	*machine
	store, peers *netcut.Proxy
}

// torture is three nodes, what is done to them, and what was seen.
type torture struct {
	t       *testing.T
	dir     string // of witnesses: a line for every execution
	natsDir string
	natsAt  string
	nats    *servertest.Server
	nodes   []*tortured
	random  *rand.Rand
	began   time.Time
	noDisk  error           // why the nodes have no disks of their own; nil if they have
	filled  map[string]bool // nodes whose disks were full

	mu      sync.Mutex
	history []attempt
	acked   map[spool.RunID]spool.Info
	seen    map[spool.RunID][]spool.Event // the longest log that a reader saw
}

// attempt is a question to the cluster and its answer.
type attempt struct {
	client       int
	run          spool.RunID
	start        bool
	call, answer time.Duration
	owner        string // node and process; empty if there is no such run
}

// TestTorture kills, stops and cuts off nodes and their store, and fills their disks, while
// clients start the same ids through all nodes at once and read them. In the end every start
// that was acknowledged is there and was executed once, on one node, also if it had to wait
// in the queue; what readers saw is the beginning of the log, also if they read a copy of it
// on another node; and no outcome was made up.
func TestTorture(t *testing.T) {
	x := newTorture(t)
	x.survive(func() {
		for i := range *faults {
			x.fault(i)
		}
	})
}

// survive has clients use the nodes while something is done to these, and checks what
// became of it.
func (x *torture) survive(do func()) {
	facts := watchNodes(x.t, "nats://"+x.natsAt)
	ctx, stop := context.WithCancel(x.t.Context())
	var clients sync.WaitGroup
	for i := range x.nodes {
		clients.Go(func() { x.work(ctx, i) })
	}
	do()
	stop()
	clients.Wait()
	x.check()
	facts.check(x.t)
}

// newTorture starts a store and three nodes.
func newTorture(t *testing.T) *torture {
	dir := t.TempDir()
	x := &torture{t: t, dir: filepath.Join(dir, "witness"), natsDir: filepath.Join(dir, "nats"), random: rand.New(rand.NewPCG(*seed, 0)), began: time.Now(),
		filled: make(map[string]bool), acked: make(map[spool.RunID]spool.Info), seen: make(map[spool.RunID][]spool.Event)}
	if err := os.Mkdir(x.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if x.nats = startNATS(t, x.natsDir, "127.0.0.1:0"); x.nats == nil {
		t.Fatal("the store did not start")
	}
	x.natsAt = strings.TrimPrefix(x.nats.URL, "nats://")
	o := &outsideNodes{dir: dir, lease: tortureLease.String()}
	for i, name := range []string{"x", "y", "z"} {
		n := new(tortured)
		disk := filepath.Join(dir, name)
		if err := os.Mkdir(disk, 0o700); err != nil {
			t.Fatal(err)
		}
		x.noDisk = errors.Join(x.noDisk, disktest.Mount(t, disk, "size=256m"))
		var err error
		if n.store, err = netcut.NewProxy(x.natsAt); err != nil {
			t.Fatal(err)
		}
		// A proxy must know the address that the node listens on.
		port, err := servertest.FreePorts(30)
		if err != nil {
			t.Fatal(err)
		}
		listen := fmt.Sprint("127.0.0.1:", port+i) // another for each node, also if it is not in use yet
		if n.peers, err = netcut.NewProxy(listen); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = n.store.Close(), n.peers.Close() })
		o.nats = "nats://" + n.store.Addr()
		n.machine = o.node(t, name, "--mirror", "1", "--mirror-free", "16M", "--cluster-listen", listen, "--cluster-advertise", n.peers.Addr())
		x.nodes = append(x.nodes, n)
	}
	for _, n := range x.nodes {
		x.nodes[0].awaitNode(t, n.name, "up")
	}
	return x
}

// fault does something bad, undoes it, and waits until all nodes are up.
func (x *torture) fault(i int) {
	n := x.nodes[x.random.IntN(len(x.nodes))]
	kinds := []string{"kill", "stop", "store cut off", "server killed", "store killed", "store stalled", "peers cut off", "store delayed", "peers delayed", "disk full", "one peer cut off"}
	kind := kinds[(i+int(*seed)-1)%len(kinds)]
	x.t.Logf("%v: %s of node %s", time.Since(x.began).Round(time.Millisecond), kind, n.name)
	longer := func() { // than the lease, as other nodes see it
		x.other(n).awaitNode(x.t, n.name, "lost")
	}
	restart := func() {
		again := *n.machine
		if err := again.start(servertest.Binary(x.t)); err != nil {
			x.t.Fatal(err)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		*n.machine = again
	}
	switch kind {
	case "kill":
		n.die()
		longer()
		restart()
	case "server killed":
		n.server.Kill()
		restart()
	case "stop":
		x.signal(n, syscall.SIGSTOP)
		longer()
		x.signal(n, syscall.SIGCONT)
	case "store cut off":
		n.store.Refuse()
		n.store.Cut()
		longer()
		n.store.Admit()
	case "store stalled":
		n.store.Stall(netcut.ToServer)
		n.store.Stall(netcut.ToClient)
		longer()
		n.store.Flow(netcut.ToServer)
		n.store.Flow(netcut.ToClient)
	case "store killed":
		x.nats.Kill()
		polltest.Until(x.t, "the store back", func() bool {
			x.nats = startNATS(x.t, x.natsDir, x.natsAt)
			return x.nats != nil
		})
	case "store delayed": // a slow network loses nobody
		before := x.other(n).list(x.t)[n.name].Epoch
		x.delay(n.store, tortureLease/20)
		x.starts(4)
		x.delay(n.store, 0)
		if after := x.other(n).list(x.t)[n.name]; after.Epoch != before || after.State != "up" {
			x.t.Errorf("node %s, whose messages were delayed, is %s in epoch %d, and was in %d", n.name, after.State, after.Epoch, before)
		}
	case "peers delayed":
		x.delay(n.peers, tortureLease/20)
		x.starts(4)
		x.delay(n.peers, 0)
	case "disk full":
		if x.noDisk != nil && os.Getenv("CI") == "" {
			x.t.Logf("full disks are not tested here: %v", x.noDisk)
			return
		}
		if x.noDisk != nil {
			x.t.Fatal(x.noDisk)
		}
		x.filled[n.name] = true
		free := fillDisk(x.t, n.state)
		x.starts(4)
		free()
	case "one peer cut off": // it goes through the third node
		pid := x.other(n).server.Pid
		n.peers.RefuseFrom(func(a net.Addr) bool { return isSocketOf(pid, a.(*net.TCPAddr).Port) })
		n.peers.Cut()
		x.starts(4)
		n.peers.RefuseFrom(nil)
	case "peers cut off":
		n.peers.Refuse()
		n.peers.Cut()
		x.starts(4)
		n.peers.Admit()
	}
	for _, n := range x.nodes {
		for _, m := range x.nodes {
			m.awaitNode(x.t, n.name, "up")
		}
	}
	x.starts(4)
}

// delay delays all messages over a proxy.
func (x *torture) delay(p *netcut.Proxy, d time.Duration) {
	p.Delay(netcut.ToServer, d)
	p.Delay(netcut.ToClient, d)
}

// signal sends a signal to the server of a node.
func (x *torture) signal(n *tortured, s syscall.Signal) {
	if err := syscall.Kill(n.server.Pid, s); err != nil {
		x.t.Fatal(err)
	}
}

// other returns another node.
func (x *torture) other(n *tortured) *tortured {
	for _, m := range x.nodes {
		if m != n {
			return m
		}
	}
	return nil
}

// starts waits until so many more starts were acknowledged.
func (x *torture) starts(more int) {
	count := func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.acked)
	}
	before := count()
	polltest.Until(x.t, "more starts", func() bool { return count() >= before+more })
}

// work is a client of one node. All clients start the same ids, in the same order, and
// read them.
func (x *torture) work(ctx context.Context, i int) {
	var readers sync.WaitGroup
	defer readers.Wait()
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for k := 0; ctx.Err() == nil; k++ {
		c := x.dial(ctx, i)
		if c == nil {
			return
		}
		spec := backendtest.Shell(fmt.Sprintf("echo $$ >>%s/run%d; for i in 0 1 2 3 4 5 6 7 8 9; do echo $i; done", x.dir, k))
		spec.ID = spool.RunID(fmt.Sprint("run", k))
		if k%4 == 3 {
			spec.Labels = map[string]string{cluster.LabelPool: cluster.DefaultPool}
		}
		x.ask(ctx, c, i, spec)
		readers.Go(func() {
			x.follow(ctx, c, spec.ID)
			_ = c.Close()
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// dial connects to a node, which may be dead now.
func (x *torture) dial(ctx context.Context, i int) *client.Client {
	return dialWhenUp(ctx, time.Second, func() (url, token string) {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.nodes[i].server.URL, x.nodes[i].token
	})
}

// ask starts a run and asks who has it.
func (x *torture) ask(ctx context.Context, c *client.Client, i int, spec spool.Spec) {
	ctx, cancel := context.WithTimeout(ctx, 4*tortureLease)
	defer cancel()
	call := time.Since(x.began)
	info, err := c.Start(ctx, spec)
	switch {
	case err == nil && info.Pid != 0:
		x.answered(attempt{i, spec.ID, true, call, time.Since(x.began), ownerOf(&info)}, &info)
	case err == nil && info.State == spool.StateQueued:
		x.queued(info)
	}
	call = time.Since(x.began)
	info, err = c.Stat(ctx, spec.ID)
	switch {
	case errors.Is(err, spool.ErrNotFound):
		x.answered(attempt{i, spec.ID, false, call, time.Since(x.began), ""}, nil)
	case err == nil && info.Pid != 0:
		x.answered(attempt{i, spec.ID, false, call, time.Since(x.began), ownerOf(&info)}, nil)
	}
}

func ownerOf(i *spool.Info) string { return fmt.Sprintf("%s/%d", i.Node, i.Pid) }

// answered notes an answer.
func (x *torture) answered(a attempt, acked *spool.Info) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.history = append(x.history, a)
	if acked != nil {
		x.acked[a.run] = *acked
	}
}

// queued notes that the queue has a run.
func (x *torture) queued(info spool.Info) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.acked[info.ID]; !ok {
		x.acked[info.ID] = info
	}
}

// follow reads a run for as long as that works.
func (x *torture) follow(ctx context.Context, c *client.Client, id spool.RunID) {
	ctx, cancel := context.WithTimeout(ctx, 4*tortureLease)
	defer cancel()
	var all []spool.Event
	for e, err := range c.Follow(ctx, id, 0) {
		if err != nil || e.Seq == 0 || e.Kind == spool.KindTruncated { // the end of a connection, of what is known, or of a copy
			break
		}
		if e.Seq != spool.Seq(len(all)+1) {
			x.t.Errorf("run %s: event %d after %d", id, e.Seq, len(all))
			return
		}
		all = append(all, e)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(all) > len(x.seen[id]) {
		x.seen[id] = all
	}
}

// check compares what the cluster says in the end with what it said before.
func (x *torture) check() {
	t := x.t
	for _, wrong := range checkHistory(x.history) {
		t.Error(wrong)
	}
	if len(x.acked) == 0 {
		t.Fatal("nothing was started")
	}
	for _, n := range x.nodes { // the store was killed, and lost nothing
		if !strings.Contains(n.get(t, "/metrics"), "spool_cluster_generation 1\n") {
			t.Errorf("node %s believes that the store went back in time", n.name)
		}
	}
	c := x.nodes[0].dial(t)
	ended, queued, copies := 0, 0, 0
	for id, acked := range x.acked {
		var info spool.Info
		polltest.Until(t, "run "+string(id)+" has ended", func() bool {
			var err error
			info, err = c.Stat(t.Context(), id)
			return err == nil && info.State == spool.StateClosed
		})
		if acked.Pid != 0 && ownerOf(&info) != ownerOf(&acked) {
			t.Errorf("run %s was started as %s and is %s", id, ownerOf(&acked), ownerOf(&info))
		}
		if acked.Pid == 0 {
			queued++
		}
		witness, err := os.ReadFile(filepath.Join(x.dir, string(id)))
		executed := strings.Count(string(witness), "\n")
		if executed > 1 {
			t.Errorf("run %s was executed %d times", id, executed)
		}
		log := events(t, c, id)
		if text := textOf(log); info.Outcome.Kind == spool.Exited {
			ended++
			whole := text == "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
			if x.filled[info.Node] { // then the log says what is missing
				whole = whole || slices.ContainsFunc(log, func(e spool.Event) bool { return e.Kind == spool.KindTruncated })
			}
			if err != nil || executed != 1 || info.Outcome.Code != 0 || !whole {
				t.Errorf("run %s is %v with the log %q and %d executions, %v", id, info.Outcome, text, executed, err)
			}
		}
		copies += x.checkCopies(id, log)
		seen := x.seen[id]
		if len(seen) > len(log) {
			t.Errorf("run %s: a reader saw %d events, and there are %d", id, len(seen), len(log))
			continue
		}
		for i := range seen {
			if seen[i].Kind != log[i].Kind || seen[i].Seq != log[i].Seq || !bytes.Equal(seen[i].Bytes, log[i].Bytes) {
				t.Errorf("run %s: event %d was %+v and is %+v", id, i+1, seen[i], log[i])
			}
		}
	}
	t.Logf("%d starts acknowledged, %d of them ended as they should, %d in the queue, %d answers, %d copies", len(x.acked), ended, queued, len(x.history), copies)
	polltest.Until(t, "nothing is left running", func() bool {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			if line, err := os.ReadFile(f); err == nil && bytes.Contains(line, []byte(">>"+x.dir)) {
				return false
			}
		}
		return true
	})
}

// checkCopies compares the copies of a run that are complete with its log, and returns how
// many there are.
func (x *torture) checkCopies(id spool.RunID, log []spool.Event) (n int) {
	for _, m := range x.nodes {
		dir := m.copyDir(id)
		if !m.hasCopy(id) {
			continue
		}
		if whole, err := finished(dir, id); err != nil || !whole {
			continue // it is being made
		}
		n++
		same := func(a, b spool.Event) bool {
			return a.Seq == b.Seq && a.Kind == b.Kind && bytes.Equal(a.Bytes, b.Bytes)
		}
		if have := onDisk(x.t, dir, id); !slices.EqualFunc(have, log, same) {
			x.t.Errorf("run %s: the copy of node %s has %d events, and the log %d: %+v", id, m.name, len(have), len(log), have)
		}
	}
	return n
}

func textOf(log []spool.Event) string {
	var b strings.Builder
	for _, e := range log {
		b.Write(e.Bytes)
	}
	return b.String()
}
