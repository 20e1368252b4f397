package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// natsRole is the first argument of this program when it is a NATS server.
const natsRole = "nats-role"

// natsMain is a NATS server until it is ended. It prints where it listens.
func natsMain(dir, address string) int {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	s, err := natsd.Start(natsd.ServerOptions{Name: "outside", Dir: dir, Client: address})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(s.URL())
	<-ended
	s.Close()
	return 0
}

// startNATS starts a NATS server as a process of its own. It returns nil if it cannot
// listen.
func startNATS(t *testing.T, dir, address string) *servertest.Server {
	t.Helper()
	s, err := servertest.StartCommand(context.Background(), os.Args[0], natsRole, dir, address)
	if err != nil {
		t.Log(err)
		return nil
	}
	t.Cleanup(s.Kill)
	return s
}

// outsideNodes are nodes whose store is a NATS server that none of them runs, with an
// archive.
type outsideNodes struct {
	dir, archive, nats, token string
	lease                     string
}

// node starts a node.
func (o *outsideNodes) node(t *testing.T, name string, more ...string) *machine {
	t.Helper()
	bin := servertest.Binary(t)
	m := &machine{name: name, state: filepath.Join(o.dir, name)}
	if o.token == "" {
		o.token = spoolOutput(t, bin, "", "--state", m.state, "cluster", "init")
	} else {
		spoolOutput(t, bin, o.token, "--state", m.state, "cluster", "join")
	}
	m.args = []string{"serve", "--state", m.state, "--listen", "127.0.0.1:0", "--cluster", "--node", name, "--node-runs", "16",
		"--cluster-listen", "127.0.0.1:0", "--cluster-lease", o.lease, "--cluster-nats", o.nats}
	if o.archive != "" {
		m.args = append(m.args, "--archive", "dir:"+o.archive)
	}
	m.args = append(m.args, more...)
	if err := m.start(bin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.die()
		servertest.EndKeepers(t, m.state)
	})
	return m
}

// awaitNode waits until a node sees another one in a state.
func (m *machine) awaitNode(t *testing.T, name, state string) {
	t.Helper()
	polltest.Until(t, "node "+name+" "+state, func() bool { return m.list(t)[name].State == state })
}

// events returns the log of a run as a client reads it.
func events(t *testing.T, c *client.Client, id spool.RunID) []spool.Event {
	t.Helper()
	var all []spool.Event
	for e, err := range spool.Attach(c, id).Events(t.Context(), 0) {
		if err != nil {
			t.Fatalf("after %d events: %v", len(all), err)
		}
		all = append(all, e)
	}
	return all
}

// TestArchivedRunOutlivesItsNode has nodes on a NATS server of its own that dies and
// comes back. Then the node of a run that was archived dies: all other nodes, also one
// that joins later, read the run as it was, and say of a run that was not archived that
// they do not know.
func TestArchivedRunOutlivesItsNode(t *testing.T) {
	dir := t.TempDir()
	o := &outsideNodes{dir: dir, archive: filepath.Join(dir, "archive"), lease: "9s"} // longer than a request waits for a node
	if err := os.Mkdir(o.archive, 0o700); err != nil {
		t.Fatal(err)
	}
	nats := startNATS(t, filepath.Join(dir, "nats"), "127.0.0.1:0")
	if nats == nil {
		t.Fatal("the NATS server did not start")
	}
	o.nats = nats.URL
	x, y := o.node(t, "x"), o.node(t, "y")
	x.awaitNode(t, "y", "up")
	c := x.dial(t)

	finished := backendtest.Start(t, c, on(y, backendtest.Shell("i=0; while [ $i -lt 99 ]; do echo line $i; i=$((i+1)); done; exit 3")))
	if outcome, err := finished.Wait(t.Context()); err != nil || outcome.Code != 3 {
		t.Fatal(outcome, err)
	}
	want := events(t, c, finished.ID())
	before, err := c.Stat(t.Context(), finished.ID())
	if err != nil || before.Node != "y" {
		t.Fatalf("%+v, %v", before, err)
	}
	removed := backendtest.Start(t, c, on(x, backendtest.Shell("echo removed")))
	if _, err := removed.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantRemoved := events(t, c, removed.ID())
	for _, id := range []spool.RunID{finished.ID(), removed.ID()} {
		polltest.Until(t, "the run in the archive", func() bool {
			found, err := filepath.Glob(filepath.Join(o.archive, "runs", "*", string(id), "manifest.json"))
			return err == nil && len(found) == 1
		})
	}
	// The archive has it, and so has its node, which says where it is.
	if again, err := c.Stat(t.Context(), finished.ID()); err != nil || !reflect.DeepEqual(again, before) {
		t.Errorf("a run that was archived is\n%+v, %v, and was\n%+v", again, err, before)
	}
	same := func(what string, c *client.Client, id spool.RunID, want []spool.Event, node string) {
		t.Helper()
		if got := events(t, c, id); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: the log has %d events, and had %d: %+v", what, len(got), len(want), got)
		}
		info, err := c.Stat(t.Context(), id)
		if err != nil || info.Node != node || info.State != spool.StateClosed || info.Outcome == nil || info.Outcome.Kind != spool.Exited {
			t.Errorf("%s: it is %+v, %v", what, info, err)
		}
		page, err := c.Read(t.Context(), id, spool.Query{})
		if err != nil || len(page.Events) == 0 || page.Info.Node != node {
			t.Errorf("%s: its first page has %d events and is of node %q, %v", what, len(page.Events), page.Info.Node, err)
		}
	}
	if _, err := c.Remove(t.Context(), []spool.RunID{removed.ID()}, false); err != nil {
		t.Fatal(err)
	}
	same("removed from its node", c, removed.ID(), wantRemoved, "x")

	// The store dies and comes back.
	live := on(y, backendtest.Shell("echo one; read x"))
	live.Stdin = true
	unknown := backendtest.Start(t, c, live)
	nats.Kill()
	address := strings.TrimPrefix(o.nats, "nats://")
	polltest.Until(t, "the NATS server back", func() bool {
		nats = startNATS(t, filepath.Join(dir, "nats"), address)
		return nats != nil
	})
	var short spool.Info
	polltest.Until(t, "a start", func() bool {
		var err error
		short, err = c.Start(t.Context(), on(y, backendtest.Shell("true")))
		return err == nil
	})
	await(t, c, short.ID, spool.StateClosed) // before its node dies

	y.die()
	// Who reads now waits until it is certain that the node is lost, and no longer than
	// that for what the archive has.
	var readers sync.WaitGroup
	readers.Go(func() {
		if got := events(t, c, finished.ID()); !reflect.DeepEqual(got, want) {
			t.Errorf("while the node is silent, the log has %d events, and had %d", len(got), len(want))
		}
	})
	readers.Go(func() {
		got := events(t, c, unknown.ID())
		if len(got) < 2 || got[len(got)-1].Kind != spool.KindClosed {
			t.Errorf("a reader that began while the node was silent was told %+v", got)
			return
		}
		if outcome, ok := got[len(got)-2].Outcome(); !ok || outcome.Kind != spool.Unknown || !strings.Contains(outcome.Reason, "lease") {
			t.Errorf("a reader that began while the node was silent was told %v", outcome)
		}
	})
	readers.Wait()
	x.awaitNode(t, "y", "lost")
	z := o.node(t, "z")
	z.awaitNode(t, "y", "lost")
	for _, m := range []*machine{x, z} {
		c := m.dial(t)
		same("lost, at "+m.name, c, finished.ID(), want, "y")
		info, err := c.Stat(t.Context(), unknown.ID())
		if err != nil || info.Outcome == nil || info.Outcome.Kind != spool.Unknown {
			t.Errorf("at %s a run that was not archived is %+v, %v", m.name, info, err)
		}
		if _, err := c.Remove(t.Context(), []spool.RunID{finished.ID()}, false); !errors.Is(err, spool.ErrLost) {
			t.Errorf("at %s a run of a lost node is removed: %v", m.name, err)
		}
		if _, err := c.Stat(t.Context(), "nobody"); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("at %s a run that there never was: %v", m.name, err)
		}
	}
	// It comes back: its own log is the same.
	if err := y.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	x.awaitNode(t, "y", "up")
	same("back", c, finished.ID(), want, "y")

	// It leaves in good order: its runs are still listed, and read.
	polltest.Until(t, "node y without live runs", func() bool {
		return exec.Command(servertest.Binary(t), "--state", y.state, "cluster", "leave").Run() == nil
	})
	y.die()
	x.awaitNode(t, "y", "gone")
	z.awaitNode(t, "y", "gone")
	for _, m := range []*machine{x, z} {
		c := m.dial(t)
		same("gone, at "+m.name, c, finished.ID(), want, "y")
		found := false
		for info, err := range c.List(t.Context(), spool.Filter{}) {
			if err != nil {
				t.Errorf("the list at %s: %v", m.name, err)
			}
			found = found || info.ID == finished.ID() && info.Node == "y" && info.Outcome != nil && info.Outcome.Code == 3
		}
		counts, err := c.Count(t.Context(), spool.Filter{Outcome: spool.Exited})
		if !found || err != nil || counts[spool.StateClosed] < 2 {
			t.Errorf("at %s the list has the run of a node that left: %v; the counts are %v, %v", m.name, found, counts, err)
		}
	}
}
