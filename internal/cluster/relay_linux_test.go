package cluster_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// relayed are nodes that reach each other through proxies, which may refuse some of them.
type relayed struct {
	t     *testing.T
	o     *outsideNodes
	nodes map[string]*tortured
}

// newRelayed starts a store and nodes.
func newRelayed(t *testing.T, names ...string) *relayed {
	dir := t.TempDir()
	nats := startNATS(t, filepath.Join(dir, "nats"), "127.0.0.1:0")
	if nats == nil {
		t.Fatal("the store did not start")
	}
	r := &relayed{t: t, o: &outsideNodes{dir: dir, lease: lease, nats: nats.URL}, nodes: make(map[string]*tortured)}
	port, err := servertest.FreePorts(len(names))
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		listen := fmt.Sprint("127.0.0.1:", port+i)
		peers, err := netcut.NewProxy(listen)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = peers.Close() })
		m := r.o.node(t, name, "--cluster-listen", listen, "--cluster-advertise", peers.Addr())
		r.nodes[name] = &tortured{machine: m, peers: peers}
	}
	for _, a := range names {
		for _, b := range names {
			r.nodes[a].awaitNode(t, b, "up")
		}
	}
	return r
}

// sever has no new connection of a node reach another, and ends those that there are.
func (r *relayed) sever(from, to string) {
	pid := r.nodes[from].server.Pid
	r.nodes[to].peers.RefuseFrom(func(a net.Addr) bool { return isSocketOf(pid, a.(*net.TCPAddr).Port) })
	r.nodes[to].peers.Cut()
}

// isSocketOf reports whether a process has the TCP connection with a local port.
func isSocketOf(pid, port int) bool {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if len(f) < 10 || !strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			continue
		}
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range files {
			if to, err := os.Readlink(fd); err == nil && to == "socket:["+f[9]+"]" {
				return true
			}
		}
	}
	return false
}

// via returns through which node one reaches another; empty if directly.
func (r *relayed) via(from *machine, to string) string {
	return strings.Join(from.list(r.t)[to].Via, ",")
}

// counter is a run that prints a line for every line of input.
func counter(m *machine) spool.Spec {
	spec := on(m, backendtest.Shell("i=0; while read x; do i=$((i+1)); echo line $i; done"))
	spec.Stdin = true
	return spec
}

// say sends a line of input to a run so often, and waits for the answers.
func say(t *testing.T, run *spool.Run, times int, answers <-chan string) {
	t.Helper()
	for range times {
		if _, err := run.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
		select {
		case _, ok := <-answers:
			if !ok {
				t.Fatal("the reader ended")
			}
		case <-t.Context().Done():
			t.Fatal("no answer came")
		}
	}
}

// reader follows a run and returns its lines, one after the other: each event is checked
// to come once and in order.
func reader(ctx context.Context, t *testing.T, c *client.Client, id spool.RunID) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		last, rest := spool.Seq(0), ""
		for e, err := range c.Follow(ctx, id, 0) {
			if ctx.Err() != nil {
				return
			}
			if err != nil || e.Seq != last+1 {
				t.Errorf("run %s: event %+v after %d, %v", id, e, last, err)
				return
			}
			last = e.Seq
			rest += string(e.Bytes)
			for {
				line, more, ok := strings.Cut(rest, "\n")
				if !ok {
					break
				}
				rest = more
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return lines
}

// TestRelayedNode has a node that another one cannot reach: it starts, lists, reads, follows
// and stops runs there through a third node, and through a fourth when that one dies. When the
// network is whole again, it is used.
func TestRelayedNode(t *testing.T) {
	r := newRelayed(t, "a", "b", "c", "d")
	a, b := r.nodes["a"], r.nodes["b"]
	r.sever("a", "b")
	ca := a.dial(t)
	run := backendtest.Start(t, ca, counter(b.machine))
	relay := r.via(a.machine, "b")
	if relay != "c" && relay != "d" {
		t.Fatalf("node a reaches node b through %q", relay)
	}
	if other := r.via(r.nodes["d"].machine, "b"); other != "" {
		t.Errorf("node d reaches node b through %q", other)
	}
	out := spoolOutput(t, servertest.Binary(t), "", "--state", a.state, "cluster", "nodes")
	if !strings.Contains(out, b.peers.Addr()+" via "+relay) {
		t.Errorf("the nodes are\n%s", out)
	}
	if !strings.Contains(a.get(t, "/metrics"), "spool_cluster_nodes_relayed 1\n") {
		t.Error("the metrics of node a do not count a node that it reaches through another")
	}
	found := false
	for info, err := range ca.List(t.Context(), spool.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		found = found || info.ID == run.ID() && info.Node == "b"
	}
	if !found {
		t.Error("node a does not list the run of node b")
	}
	lines := reader(t.Context(), t, ca, run.ID())
	say(t, run, 20, lines)
	for range 5 { // the relay is cut off, at any byte
		done := r.nodes[relay].peers.CutAfter(netcut.ToClient, 300)
		for cut := false; !cut; {
			say(t, run, 1, lines)
			select {
			case <-done:
				cut = true
			default:
			}
		}
	}
	first := r.via(a.machine, "b")
	if first == "" {
		t.Fatal("node a reaches node b, which refuses it")
	}
	if text := r.nodes[first].get(t, "/metrics"); strings.Contains(text, "spool_cluster_relay_bytes 0\n") || strings.Contains(text, "spool_cluster_relay_tunnels 0\n") {
		t.Errorf("the relay %s counts no bytes or tunnels", first)
	}
	r.nodes[first].server.Kill()
	say(t, run, 20, lines)
	if second := r.via(a.machine, "b"); second == "" || second == first {
		t.Errorf("after relay %s was killed, node b is reached through %q", first, second)
	}
	b.peers.RefuseFrom(nil)
	polltest.Until(t, "node b reached directly", func() bool { return r.via(a.machine, "b") == "" })
	say(t, run, 20, lines)
	if err := run.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if outcome, err := run.Wait(t.Context()); err != nil || outcome.Signal != "SIGKILL" {
		t.Errorf("the run ended as %v, %v", outcome, err)
	}
	if _, ok := <-lines; ok {
		t.Error("there are more lines than were asked for")
	}
	if text := textOf(events(t, ca, run.ID())); !strings.HasPrefix(text, "line 1\nline 2\n") {
		t.Errorf("the log has %q", text)
	}
}

// TestNodeWithoutAddress has a node that does not listen: all others start and read runs
// there, and it theirs. One of its relays is killed while they read.
func TestNodeWithoutAddress(t *testing.T) {
	r := newRelayed(t, "a", "b", "c")
	port, err := servertest.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	listen := fmt.Sprint("127.0.0.1:", port)
	n := r.o.node(t, "n", "--cluster-listen", listen, "--cluster-advertise", "none")
	if c, err := net.Dial("tcp", listen); err == nil {
		_ = c.Close()
		t.Error("a node without an address listens")
	}
	for _, m := range r.nodes {
		polltest.Until(t, "node n with relays", func() bool { return len(m.list(t)["n"].Via) > 0 })
	}
	polltest.Until(t, "three relays", func() bool { return len(n.list(t)["n"].Via) == 3 })
	type watched struct {
		name  string
		run   *spool.Run
		lines <-chan string
	}
	var runs []watched
	for _, name := range []string{"a", "b", "c"} {
		c := r.nodes[name].dial(t)
		run := backendtest.Start(t, c, counter(n))
		runs = append(runs, watched{name, run, reader(t.Context(), t, c, run.ID())})
		say(t, run, 5, runs[len(runs)-1].lines)
		if via := r.via(r.nodes[name].machine, "n"); via == "" {
			t.Errorf("node %s reaches node n directly", name)
		}
	}
	cn := n.dial(t)
	back := backendtest.Start(t, cn, counter(r.nodes["a"].machine))
	lines := reader(t.Context(), t, cn, back.ID())
	say(t, back, 5, lines)

	// A relay dies: the others go on.
	dead := r.via(r.nodes["a"].machine, "n")
	if dead == "a" {
		dead = "b"
	}
	r.nodes[dead].server.Kill()
	for _, w := range runs {
		if w.name != dead {
			say(t, w.run, 20, w.lines)
		}
	}
	say(t, back, 5, lines)
	for _, w := range runs {
		if w.name == dead {
			continue
		}
		if err := w.run.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		if outcome, err := w.run.Wait(t.Context()); err != nil || outcome.Signal != "SIGKILL" {
			t.Errorf("a run of node n ended as %v, %v", outcome, err)
		}
		if _, ok := <-w.lines; ok {
			t.Error("there are more lines than were asked for")
		}
	}
	polltest.Until(t, "a relay less", func() bool { return len(n.list(t)["n"].Via) == 2 })
	again := r.nodes[dead].machine
	if err := again.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "three relays again", func() bool { return len(n.list(t)["n"].Via) == 3 })
}
