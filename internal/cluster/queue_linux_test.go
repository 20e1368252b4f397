package cluster_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
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
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/servertest"
)

// store starts a store for the nodes of a test.
func store(t *testing.T) *natsd.Server {
	t.Helper()
	s, err := natsd.Start(natsd.ServerOptions{Name: "store", Dir: t.TempDir(), Client: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// join makes a node in this process. It and its runs end with the test, or with leave.
func join(t *testing.T, s *natsd.Server, o cluster.Options) (n *cluster.Node, leave func()) {
	t.Helper()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	facts, ok := o.Facts.(*natsd.Facts)
	if !ok {
		if facts, err = natsd.Connect(natsd.Options{Server: s, Name: o.Name}); err != nil {
			t.Fatal(err)
		}
	}
	if o.State == "" {
		o.State = t.TempDir()
	}
	o.Backend, o.Facts, o.Judge = h, facts, true
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil)).With("node", o.Name)
	if o.Timing.TTL == 0 {
		o.Timing = cluster.NewTiming(time.Minute)
	}
	if n, err = cluster.Join(o); err != nil {
		t.Fatal(err)
	}
	left := false
	leave = func() {
		if left {
			return
		}
		left = true
		_ = n.Close()
		facts.Close()
		_ = h.Close()
	}
	t.Cleanup(leave)
	if err := n.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	return n, leave
}

// queued is a spec that waits for a node of a pool.
func queued(pool, script string) spool.Spec {
	spec := backendtest.Shell(script)
	spec.Labels = map[string]string{cluster.LabelPool: pool}
	return spec
}

// await waits until a run is in a state.
func await(t *testing.T, b spool.Backend, id spool.RunID, state spool.State) spool.Info {
	t.Helper()
	var (
		info spool.Info
		err  error
	)
	defer func() {
		if t.Failed() {
			t.Logf("run %s is %q with the outcome %v, %v", id, info.State, info.Outcome, err)
		}
	}()
	polltest.Until(t, fmt.Sprintf("run %s %s", id, state), func() bool {
		info, err = b.Stat(t.Context(), id)
		return err == nil && info.State == state
	})
	return info
}

// lines returns the lines of a file that runs write.
func lines(t *testing.T, name string) []string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// TestQueueOrder fills a node with one run and lets others wait: subjects take turns,
// and of the runs of one subject that with the highest priority starts first. The node
// never has more runs than it takes.
func TestQueueOrder(t *testing.T) {
	s := store(t)
	n, _ := join(t, s, cluster.Options{Name: "alone", Slots: 1})
	b := n.Backend()
	began := filepath.Join(t.TempDir(), "began")
	first := queued("default", "read x")
	first.ID, first.Stdin = "first", true
	if info, err := b.Start(t.Context(), first); err != nil || info.State != spool.StateQueued || info.ID != "first" {
		t.Fatalf("a submit: %+v, %v", info, err)
	}
	await(t, b, "first", spool.StateRunning)
	var want []string
	for i, w := range []struct {
		id, subject, priority string
	}{{"a1", "ann", ""}, {"a2", "ann", "-3"}, {"a3", "ann", "7"}, {"a4", "ann", ""}, {"b1", "bob", ""}, {"b2", "bob", "1000"}} {
		spec := queued("default", fmt.Sprintf("echo %s >> %s", w.id, began))
		spec.ID, spec.Name = spool.RunID(w.id), "job"+w.id
		spec.Labels[record.LabelSubject] = w.subject
		if w.priority != "" {
			spec.Labels[cluster.LabelPriority] = w.priority
		}
		for range 2 { // saying it again changes nothing
			if info, err := b.Start(t.Context(), spec); err != nil || info.State != spool.StateQueued || info.Created.IsZero() {
				t.Fatalf("submit %d: %+v, %v", i, info, err)
			}
		}
		want = append(want, w.id)
	}
	other := queued("default", "true")
	other.ID = "a1"
	if _, err := b.Start(t.Context(), other); !errors.Is(err, spool.ErrExists) {
		t.Errorf("another spec with the id of one that waits: %v", err)
	}
	var listed []string
	for info, err := range b.List(t.Context(), spool.Filter{State: spool.StateQueued, Oldest: true}) {
		if err != nil {
			t.Fatal(err)
		}
		listed = append(listed, string(info.ID))
	}
	if !slices.Equal(listed, want) {
		t.Errorf("the queue has %q, want %q", listed, want)
	}
	counts, err := b.Count(t.Context(), spool.Filter{})
	if err != nil || counts[spool.StateQueued] != len(want) || counts[spool.StateRunning] != 1 {
		t.Errorf("the counts are %v, %v", counts, err)
	}
	if _, err := b.Remove(t.Context(), []spool.RunID{"a1"}, false); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("remove a run that waits: %v", err)
	}
	if _, err := b.Send(t.Context(), "a1", spool.Input{Kind: spool.InputEOF}); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("input to a run that waits: %v", err)
	}
	// A reader waits with the run.
	done := make(chan spool.Outcome, 1)
	go func() {
		outcome, err := spool.Attach(b, "a2").Wait(t.Context())
		if err != nil {
			t.Error(err)
		}
		done <- outcome
	}()
	if err := spool.Attach(b, "first").Stdin(t.Context()).Close(); err != nil {
		t.Fatal(err)
	}
	if outcome := <-done; outcome.Kind != spool.Exited || outcome.Code != 0 {
		t.Errorf("the run that was followed from the queue on ended: %v", outcome)
	}
	for _, id := range want {
		await(t, b, spool.RunID(id), spool.StateClosed)
	}
	if got := lines(t, began); !slices.Equal(got, []string{"a3", "b2", "a1", "b1", "a4", "a2"}) {
		t.Errorf("the runs began in the order %q", got)
	}
}

// TestQueueRefusals cancels a run, drains a node, and submits what cannot be.
func TestQueueRefusals(t *testing.T) {
	s := store(t)
	n, _ := join(t, s, cluster.Options{Name: "alone", Slots: 4, Queue: 2, Labels: map[string]string{"pool": "cpu,small"}})
	b := n.Backend()
	witness := filepath.Join(t.TempDir(), "witness")

	// No node of the pool is there; then it is canceled.
	spec := queued("gpu", "echo ran >> "+witness)
	spec.ID = "never"
	run := backendtest.Start(t, b, spec)
	if err := run.Interrupt(t.Context()); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("interrupt a run that waits: %v", err)
	}
	ended := make(chan spool.Event, 1)
	go func() {
		var last spool.Event
		for e, err := range b.Follow(t.Context(), "never", 0) {
			if err != nil {
				t.Error(err)
			}
			if _, ok := e.Outcome(); ok {
				last = e
			}
		}
		ended <- last
	}()
	for range 2 {
		if err := run.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := <-ended
	if outcome, ok := last.Outcome(); !ok || outcome.Kind != spool.Failed || !strings.Contains(outcome.Reason, "canceled") {
		t.Errorf("the reader was told %+v", last)
	}
	info, err := b.Stat(t.Context(), "never")
	if err != nil || info.State != spool.StateClosed || info.Outcome == nil || info.Outcome.Kind != spool.Failed {
		t.Errorf("the canceled run is %+v, %v", info, err)
	}
	if again, err := b.Start(t.Context(), spec); err != nil || again.State != spool.StateClosed {
		t.Errorf("the canceled run submitted again: %+v, %v", again, err)
	}
	if _, err := b.Remove(t.Context(), []spool.RunID{"never"}, false); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("remove a run that was never started: %v", err)
	}

	// What cannot be started ends as failed.
	bad := queued("small", "")
	bad.ID, bad.Argv = "bad", []string{"/nonexistent/program"}
	backendtest.Start(t, b, bad)
	if info := await(t, b, "bad", spool.StateClosed); info.Outcome == nil || info.Outcome.Kind != spool.Failed || !strings.Contains(info.Outcome.Reason, "nonexistent") {
		t.Errorf("a run that cannot be started is %+v", info)
	}

	// A node that drains takes nothing, and the queue is full with two.
	if err := n.Drain(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		spec := queued("cpu", "true")
		spec.ID = spool.RunID(fmt.Sprint("later", i))
		backendtest.Start(t, b, spec)
	}
	var refused *spool.StartError
	if _, err := b.Start(t.Context(), queued("cpu", "true")); !errors.As(err, &refused) || !errors.Is(err, spool.ErrBusy) {
		t.Errorf("a submit to a full queue: %v", err)
	}
	if info, err := b.Stat(t.Context(), "later1"); err != nil || info.State != spool.StateQueued {
		t.Errorf("a run is %+v, %v while the node drains", info, err)
	}
	if err := n.Drain(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		await(t, b, spool.RunID(fmt.Sprint("later", i)), spool.StateClosed)
	}

	large := queued("cpu", strings.Repeat("x", 600<<10))
	priority := queued("cpu", "true")
	priority.Labels[cluster.LabelPriority] = "1001"
	for _, spec := range []spool.Spec{queued("No Pool", "true"), priority, large} {
		if _, err := b.Start(t.Context(), spec); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("a submit with the labels %v: %v", spec.Labels, err)
		}
	}
	if got := lines(t, witness); len(got) > 0 {
		t.Errorf("the canceled run wrote %q", got)
	}
}

// TestQueueStartsOnce has a node die after it claimed a run, before it started it, and
// one that starts a run and cannot take it out of the queue. Each run is started once.
func TestQueueStartsOnce(t *testing.T) {
	t.Run("a node that said what it has", func(t *testing.T) { testQueueStartsOnce(t, func() {}) })
	t.Run("a node that did not", func(t *testing.T) {
		testQueueStartsOnce(t, failpoint.Enable("cluster.assert", 0, failpoint.Fail(failpoint.ErrInjected)))
	})
}

// testQueueStartsOnce calls died when the first life of the node has ended.
func testQueueStartsOnce(t *testing.T, died func()) {
	s := store(t)
	timing := cluster.NewTiming(2 * time.Second)
	other, _ := join(t, s, cluster.Options{Name: "other", Slots: 8, Timing: timing, Labels: map[string]string{"pool": "other"}})
	state := t.TempDir()
	_, die := join(t, s, cluster.Options{Name: "victim", Slots: 8, Timing: timing, State: state})
	b := other.Backend()
	facts, err := natsd.Connect(natsd.Options{Server: s, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer facts.Close()
	witness := filepath.Join(t.TempDir(), "witness")

	claimed := make(chan struct{})
	disable := failpoint.Enable("cluster.claimed", 1, func() error {
		close(claimed)
		return failpoint.ErrInjected
	})
	defer disable()
	spec := queued("default", "echo one >> "+witness)
	spec.ID = "one"
	backendtest.Start(t, b, spec)
	<-claimed
	die()
	died()
	// Nobody knows, and nobody says anything else.
	polltest.Until(t, "the run lost", func() bool {
		info, err := b.Stat(t.Context(), "one")
		return err == nil && info.Outcome != nil && info.Outcome.Kind == spool.Unknown && strings.Contains(info.Outcome.Reason, "not confirmed")
	})
	if got := lines(t, witness); len(got) > 0 {
		t.Fatalf("the run wrote %q", got)
	}
	// The node comes back with its disk, and knows that it did not start the run. For
	// now it takes none.
	_, leave := join(t, s, cluster.Options{Name: "victim", Slots: 8, Timing: timing, State: state, Labels: map[string]string{"pool": "other"}})
	polltest.Until(t, "the claim taken back", func() bool { return fact(t, facts, "run.one").State == "failed" })
	leave()
	// The run that it starts then stays in the queue, where it is claimed once more.
	defer failpoint.Enable("cluster.queue.done", 1, failpoint.Fail(failpoint.ErrInjected))()
	back, _ := join(t, s, cluster.Options{Name: "victim", Slots: 8, Timing: timing, State: state})
	await(t, back.Backend(), "one", spool.StateClosed)
	polltest.Until(t, "an empty queue", func() bool {
		for _, err := range b.List(t.Context(), spool.Filter{State: spool.StateQueued}) {
			if err == nil { // these nodes cannot list the runs of each other
				return false
			}
		}
		return true
	})
	if got := lines(t, witness); !slices.Equal(got, []string{"one"}) {
		t.Errorf("the run wrote %q", got)
	}
}

// TestSubmit submits runs from the command line of one node, which others start: each
// once, also if it is submitted through several nodes at once.
func TestSubmit(t *testing.T) {
	n := nodes(t)
	n.wipe(t)
	bin := servertest.Binary(t)
	witness := filepath.Join(t.TempDir(), "witness")
	submit := func(m *machine, args ...string) string {
		return spoolOutput(t, bin, "", append([]string{"--state", m.state, "submit"}, args...)...)
	}
	var wg sync.WaitGroup
	for _, m := range []*machine{n.a, n.b, n.w} {
		wg.Go(func() {
			out, err := exec.Command(bin, "--state", m.state, "submit", "--id", "once", "--env", "WORD=hello", "--wait", "--", "/bin/sh", "-c", "echo $WORD >> "+witness).CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != "once" {
				t.Errorf("submit at node %s printed %q, %v", m.name, out, err)
			}
		})
	}
	wg.Wait()
	if got := lines(t, witness); !slices.Equal(got, []string{"hello"}) {
		t.Errorf("the run wrote %q", got)
	}
	a := n.a.dial(t)
	if info := await(t, a, "once", spool.StateClosed); info.Node == "" || info.Node == "a" {
		t.Errorf("the run is on node %q", info.Node)
	}
	id := submit(n.b, "--pool", "nowhere", "--priority", "5", "--label", "place.want.kind=worker", "--", "true")
	if out := spoolOutput(t, bin, "", "--state", n.b.state, "cluster", "queue"); !strings.Contains(out, id) || !strings.Contains(out, "nowhere") {
		t.Errorf("the queue is\n%s", out)
	}
	spoolOutput(t, bin, "", "--state", n.w.state, "cluster", "queue", "cancel", id)
	if info := await(t, a, spool.RunID(id), spool.StateClosed); info.Outcome == nil || info.Outcome.Kind != spool.Failed {
		t.Errorf("the canceled run is %+v", info)
	}
	id = submit(n.b, "--label", "place.node=w", "--", "true")
	if info := await(t, a, spool.RunID(id), spool.StateClosed); info.Node != "w" {
		t.Errorf("a run for node w is on node %q", info.Node)
	}
}
