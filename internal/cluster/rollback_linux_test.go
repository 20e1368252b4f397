package cluster_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
)

// rig is a store that can be taken back, and the nodes on it.
type rig struct {
	dir, address string
	server       *natsd.Server
}

// newRig starts a store.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{dir: filepath.Join(t.TempDir(), "store"), address: "127.0.0.1:0"}
	r.start(t)
	t.Cleanup(func() { r.server.Close() })
	r.address = strings.TrimPrefix(r.server.URL(), "nats://")
	return r
}

func (r *rig) start(t *testing.T) {
	t.Helper()
	polltest.Until(t, "the store listens", func() bool { // a client of another test may have its port for a moment
		s, err := natsd.Start(natsd.ServerOptions{Name: "store", Dir: r.dir, Client: r.address})
		if err == nil {
			r.server = s
		}
		return err == nil
	})
}

// replace ends the store, does something to its files, and starts it again.
func (r *rig) replace(t *testing.T, do func() error) {
	t.Helper()
	r.server.Close()
	if err := do(); err != nil {
		t.Fatal(err)
	}
	r.start(t)
}

// copyTo copies the files of the store.
func (r *rig) copyTo(t *testing.T, dir string) {
	t.Helper()
	r.replace(t, func() error { return os.CopyFS(dir, os.DirFS(r.dir)) })
}

// restore takes the store back to a copy. Without one everything is gone.
func (r *rig) restore(t *testing.T, dir string) {
	t.Helper()
	r.replace(t, func() error {
		if err := os.RemoveAll(r.dir); err != nil || dir == "" {
			return err
		}
		return os.CopyFS(r.dir, os.DirFS(dir))
	})
}

// machineRig is a node in this process that can die and come back with its disk.
type machineRig struct {
	*cluster.Node
	rig   *rig
	name  string
	slots int
	renew time.Duration
	dir   string
	close func()

	replicas int // servers of the store that hold every fact; zero means one
}

func (r *rig) node(t *testing.T, name string, slots int) *machineRig {
	t.Helper()
	return r.quiet(t, name, slots, time.Second)
}

// quiet starts a node that seldom renews its lease.
func (r *rig) quiet(t *testing.T, name string, slots int, renew time.Duration) *machineRig {
	t.Helper()
	m := &machineRig{rig: r, name: name, slots: slots, renew: renew, dir: t.TempDir()}
	m.start(t)
	t.Cleanup(func() { m.close() })
	return m
}

// start starts the node.
func (m *machineRig) start(t *testing.T) {
	t.Helper()
	h, err := host.Open(host.Options{Dir: filepath.Join(m.dir, "runs"), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	facts, err := natsd.Connect(natsd.Options{URL: "nats://" + m.rig.address, Name: m.name, Replicas: m.replicas})
	if err != nil {
		t.Fatal(err)
	}
	m.Node, err = cluster.Join(cluster.Options{
		State: m.dir, Name: m.name, Backend: h, Facts: facts, Judge: true, Slots: m.slots, Timing: cluster.Timing{TTL: time.Minute, Renew: m.renew}, Claim: 2 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	node := m.Node
	m.close = func() {
		m.close = func() {}
		_ = node.Close()
		facts.Close()
		_ = h.Close()
	}
	if err := m.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// here is a spec for this node that leaves a line when it is executed.
func (m *machineRig) here(id spool.RunID, witness, then string) spool.Spec {
	spec := backendtest.Shell("echo " + string(id) + " >> " + witness + "; " + then)
	spec.ID, spec.Stdin = id, true
	spec.Labels = map[string]string{"place.node": m.name}
	return spec
}

// begin starts a run, or submits it. A busy machine may need longer than a start waits.
func (m *machineRig) begin(t *testing.T, spec spool.Spec) {
	t.Helper()
	polltest.Until(t, "the start of "+string(spec.ID), func() bool {
		_, err := m.Backend().Start(t.Context(), spec)
		if err != nil && !errors.Is(err, cluster.ErrUndecided) {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestStoreGoesBackUnseen takes the store back while a node has nothing to write: the
// node notices it when it connects again.
func TestStoreGoesBackUnseen(t *testing.T) {
	r := newRig(t)
	x := r.quiet(t, "x", 8, time.Minute)
	witness, older := filepath.Join(t.TempDir(), "witness"), filepath.Join(t.TempDir(), "older")
	r.copyTo(t, older)
	x.begin(t, x.here("late", witness, "true"))
	facts, err := natsd.Connect(natsd.Options{URL: "nats://" + r.address, Name: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	defer facts.Close()
	polltest.Until(t, "the end of the run is written", func() bool {
		f, err := facts.Get(t.Context(), "run.late")
		return err == nil && strings.Contains(string(f.Data), `"state":"closed"`)
	})
	r.restore(t, older)
	polltest.Until(t, "the store has the run again", func() bool {
		_, err := facts.Get(t.Context(), "run.late")
		return x.Status().Generation == 2 && err == nil
	})
}

// TestStoreGoesBack takes the store back to an older copy of its files while nodes are
// up, and later loses all of them. Nobody starts anything until all nodes have said
// again what they have, or an operator gave the missing one up; then nothing that was
// acknowledged is lost, and nothing is executed twice.
func TestStoreGoesBack(t *testing.T) {
	r := newRig(t)
	x, y, z := r.node(t, "x", 8), r.node(t, "y", 8), r.node(t, "z", 0)
	witness, older := filepath.Join(t.TempDir(), "witness"), filepath.Join(t.TempDir(), "older")
	ended := func(m *machineRig, id spool.RunID) {
		t.Helper()
		m.begin(t, m.here(id, witness, "true"))
		await(t, m.Backend(), id, spool.StateClosed)
	}
	ended(x, "early")
	for _, m := range []*machineRig{x, y} { // the nodes know each other
		polltest.Until(t, "three nodes", func() bool { return len(m.Nodes()) == 3 })
	}
	r.copyTo(t, older)

	// What happens after the copy: runs that end, that go on, that are removed, that
	// wait.
	ended(x, "late")
	ended(y, "other")
	ended(x, "removed")
	if _, err := x.Backend().Remove(t.Context(), []spool.RunID{"removed"}, false); err != nil {
		t.Fatal(err)
	}
	live := x.here("live", witness, "read x")
	live.Name = "named"
	x.begin(t, live)
	waits := queued("nowhere", "true")
	waits.ID = "waits"
	y.begin(t, waits)
	z.close()

	r.restore(t, older)
	for _, m := range []*machineRig{x, y} {
		polltest.Until(t, m.name+" knows that the store went back", func() bool {
			s := m.Status()
			return s.Rebuild != nil && slices.Equal(s.Rebuild.Missing, []string{"z"}) && s.Generation == 2
		})
	}
	var wg sync.WaitGroup
	refuses := func(what string, b spool.Backend, spec spool.Spec) {
		wg.Go(func() {
			var refused *spool.StartError
			_, err := b.Start(t.Context(), spec)
			if !errors.As(err, &refused) || !errors.Is(err, cluster.ErrUndecided) || !strings.Contains(err.Error(), "went back in time") || !strings.Contains(refused.Hint, "--without z") {
				t.Errorf("%s while a node is missing: %v", what, err)
			}
		})
	}
	for _, id := range []spool.RunID{"late", "live", "removed"} {
		refuses("start "+string(id), y.Local(), y.here(id, witness, "true"))
	}
	refuses("a start", x.Backend(), x.here("new", witness, "true"))
	refuses("a submit", x.Backend(), queued("nowhere", "true"))
	wg.Wait()
	// The last node is back: everything is known again.
	z.start(t)
	exists := func(what string, m *machineRig, spec spool.Spec) {
		t.Helper()
		polltest.Until(t, what, func() bool {
			_, err := m.Local().Start(t.Context(), spec)
			if !errors.Is(err, spool.ErrExists) && !errors.Is(err, cluster.ErrUndecided) {
				t.Fatalf("%s: %v", what, err)
			}
			return errors.Is(err, spool.ErrExists)
		})
	}
	check := func(what string) {
		t.Helper()
		for _, m := range []*machineRig{x, y} {
			polltest.Until(t, m.name+" starts runs again "+what, func() bool { return m.Status().Rebuild == nil && m.Ready(t.Context()) == nil })
		}
		for _, id := range []spool.RunID{"early", "late", "live", "removed"} {
			// Node y cannot reach x, which has them, and so cannot ask for more than the claim.
			exists(what+": start "+string(id)+" again elsewhere", y, y.here(id, witness, "true"))
		}
		exists(what+": start a run of y again", x, x.here("other", witness, "true"))
		named := x.here("taker", witness, "true")
		named.Name = "named"
		exists(what+": give a name to two live runs", x, named)
		polltest.Until(t, "the run in the queue again "+what, func() bool {
			info, err := x.Backend().Stat(t.Context(), "waits")
			return err == nil && info.State == spool.StateQueued
		})
		if info, err := x.Backend().Stat(t.Context(), "live"); err != nil || info.State != spool.StateRunning {
			t.Errorf("%s: the live run is %+v, %v", what, info, err)
		}
	}
	check("after a copy")

	// The store loses everything, and a node never comes back.
	z.close()
	r.restore(t, "")
	polltest.Until(t, "a new store", func() bool {
		s := y.Status()
		return s.Rebuild != nil && s.Generation == 3 && slices.Equal(s.Rebuild.Missing, []string{"z"})
	})
	if err := y.Rebuild(t.Context(), []string{"nobody"}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("go on without a node that is not missing: %v", err)
	}
	if err := y.Rebuild(t.Context(), []string{"z"}); err != nil {
		t.Fatal(err)
	}
	check("after a loss")
	if err := spool.Attach(x.Backend(), "live").Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	await(t, x.Backend(), "live", spool.StateClosed)
	ended(y, "last")
	got := lines(t, witness)
	slices.Sort(got)
	if want := []string{"early", "last", "late", "live", "other", "removed"}; !slices.Equal(got, want) {
		t.Errorf("these were executed: %q, want %q", got, want)
	}

	// An operator may say so, too.
	if err := x.Rebuild(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the next generation", func() bool { s := x.Status(); return s.Generation == 4 })
}

// TestNewControlNode joins a machine to a cluster that got another store: nothing starts
// before the nodes that the token names have said what they have.
func TestNewControlNode(t *testing.T) {
	r := newRig(t)
	m := &machineRig{rig: r, name: "new", slots: 1, renew: time.Second, dir: t.TempDir(), close: func() {}}
	token := (&cluster.Membership{Key: cluster.NewKey(), Generation: 4, Nodes: []string{"old"}}).Token()
	member, err := cluster.ParseToken(token)
	if err == nil {
		err = cluster.SaveMembership(m.dir, member)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.start(t)
	t.Cleanup(func() { m.close() })
	if s := m.Status(); s.Generation != 5 || s.Rebuild == nil || !slices.Equal(s.Rebuild.Missing, []string{"old"}) {
		t.Fatalf("the store is %+v, %+v", s, s.Rebuild)
	}
	if err := m.Rebuild(t.Context(), []string{"old"}); err != nil {
		t.Fatal(err)
	}
	m.begin(t, backendtest.Shell("true"))
	// The same token again is nothing new.
	m.close()
	m.start(t)
	if s := m.Status(); s.Generation != 5 || s.Rebuild != nil {
		t.Errorf("after a restart the store is %+v, %+v", s, s.Rebuild)
	}
}
