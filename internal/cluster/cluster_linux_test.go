package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// TestBackend runs the suite of every backend against a node that has none of the
// runs: they are on the others.
func TestBackend(t *testing.T) {
	n := nodes(t)
	backendtest.Run(t, func(t *testing.T) spool.Backend {
		n.wipe(t)
		return n.a.dial(t)
	})
}

// on has a run started on a node.
func on(m *machine, spec spool.Spec) spool.Spec {
	spec.Labels = map[string]string{"place.node": m.name}
	return spec
}

// TestRunsAreSpread checks that runs go to all nodes that take some, and that each
// node says where a run is.
func TestRunsAreSpread(t *testing.T) {
	n := nodes(t)
	n.wipe(t)
	a, b := n.a.dial(t), n.b.dial(t)
	// Each node says with its lease how full it is.
	polltest.Until(t, "nodes without runs", func() bool {
		live := 0
		for _, node := range n.a.list(t) {
			live += node.Live
		}
		return live == 0
	})
	seen := make(map[string]int)
	spec := backendtest.Shell("read x")
	spec.Stdin = true
	// A node may count runs that were sent to another one and have ended until that one
	// renews its lease, but not as many as fit into all.
	for i := 0; i < 9 || len(seen) < 3 && i < 48; i++ {
		info, err := a.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		seen[info.Node]++
		for _, c := range []*client.Client{a, b} {
			if got, err := c.Stat(t.Context(), info.ID); err != nil || got.Node != info.Node || got.Pid != info.Pid {
				t.Errorf("run %s of node %s is %+v, %v", info.ID, info.Node, got, err)
			}
		}
	}
	if seen["a"] > 0 || seen["b"] == 0 || seen["c"] == 0 || seen["w"] == 0 {
		t.Errorf("the runs are on the nodes %v", seen)
	}
	spec.Labels = map[string]string{"place.want.kind": "worker"}
	if info, err := a.Start(t.Context(), spec); err != nil || info.Node != "w" {
		t.Errorf("a run that wants a worker is on node %s, %v", info.Node, err)
	}
	spec.Labels = map[string]string{"place.want.kind": "toaster"}
	var refused *spool.StartError
	if _, err := a.Start(t.Context(), spec); !errors.As(err, &refused) || !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("a run that no node takes: %v", err)
	}
}

// TestDrainedNodeTakesNoRuns drains a node and has it take runs again.
func TestDrainedNodeTakesNoRuns(t *testing.T) {
	n := nodes(t)
	n.wipe(t)
	a := n.a.dial(t)
	spec := on(n.w, backendtest.Shell("true"))
	for _, tt := range []struct {
		verb  string
		takes bool
	}{{"drain", false}, {"undrain", true}} {
		out := spoolOutput(t, servertest.Binary(t), "", "--state", n.w.state, "cluster", tt.verb)
		if strings.Contains(out, "draining") == tt.takes {
			t.Errorf("after %s the nodes are\n%s", tt.verb, out)
		}
		n.await(t, n.w, map[bool]string{true: "up", false: "draining"}[tt.takes])
		if _, err := a.Start(t.Context(), spec); (err == nil) != tt.takes {
			t.Errorf("a start after %s: %v", tt.verb, err)
		}
	}
}

// TestOneStartForAnID starts the same ids through two nodes at once: each is executed
// once, and both nodes answer with the same run.
func TestOneStartForAnID(t *testing.T) {
	n := nodes(t)
	n.wipe(t)
	clients := []*client.Client{n.a.dial(t), n.b.dial(t), n.w.dial(t)}
	dir := t.TempDir()
	const ids = 12
	var wg sync.WaitGroup
	infos := make([][]spool.Info, ids)
	for i := range ids {
		infos[i] = make([]spool.Info, len(clients))
		spec := backendtest.Shell(fmt.Sprintf("echo $$ >> %s/%d; read x", dir, i))
		spec.ID, spec.Stdin = spool.RunID(fmt.Sprint("once", i)), true
		for j, c := range clients {
			wg.Go(func() {
				var err error
				if infos[i][j], err = c.Start(t.Context(), spec); err != nil {
					t.Errorf("start %s: %v", spec.ID, err)
				}
			})
		}
	}
	wg.Wait()
	for i := range ids {
		first := infos[i][0]
		for _, info := range infos[i] {
			if info.Pid != first.Pid || info.Node != first.Node || info.Pid == 0 {
				t.Errorf("run %d is process %d of node %s, and process %d of node %s", i, first.Pid, first.Node, info.Pid, info.Node)
			}
		}
		r := spool.Attach(clients[1], first.ID)
		if err := r.Stdin(t.Context()).Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil || strings.Count(string(b), "\n") != 1 {
			t.Errorf("run %d was executed as the processes %q, %v", i, b, err)
		}
	}
}

// TestStartWithAnIDOfAnother starts a run with the id of one that was on another node,
// which was removed and that the store has forgotten: a node that remembers it finds the
// new one.
func TestStartWithAnIDOfAnother(t *testing.T) {
	n := nodes(t)
	a := n.a.dial(t)
	spec := backendtest.Shell("true")
	spec.ID = "again"
	for _, m := range []*machine{n.b, n.c} {
		n.wipe(t)
		if _, err := m.dial(t).Start(t.Context(), on(m, spec)); err != nil {
			t.Fatal(err)
		}
		if info, err := a.Start(t.Context(), on(m, spec)); err != nil || info.Node != m.name {
			t.Errorf("a start of the run of node %s: %+v, %v", m.name, info, err)
		}
	}
}

// TestPausedNodeIsFenced stops the server of a node for longer than its lease. Others
// say that they do not know about its runs, until it is back: then its log has no hole.
func TestPausedNodeIsFenced(t *testing.T) {
	n := nodes(t)
	n.wipe(t)
	a := n.a.dial(t)
	before := n.await(t, n.w, "up")
	spec := on(n.w, backendtest.Shell("echo one; read x; echo two; read x"))
	spec.Stdin = true
	r := backendtest.Start(t, a, spec)
	if err := syscall.Kill(n.w.server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(n.w.server.Pid, syscall.SIGCONT)
	// A node that does not answer keeps nobody from a start with an id of his own.
	beside := on(n.b, backendtest.Shell("true"))
	beside.ID = "beside"
	if info, err := a.Start(t.Context(), beside); err != nil || info.Node != "b" {
		t.Errorf("a start beside a node that is silent: %+v, %v", info, err)
	}
	n.await(t, n.w, "lost")
	info, err := a.Stat(t.Context(), r.ID())
	if err != nil || info.Outcome == nil || info.Outcome.Kind != spool.Unknown || !strings.Contains(info.Outcome.Reason, "node w") || info.Node != "w" {
		t.Errorf("a run of a node that is fenced: %+v, %v", info, err)
	}
	if err := syscall.Kill(n.w.server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if after := n.await(t, n.w, "up"); after.Epoch <= before.Epoch {
		t.Errorf("node w is back in epoch %d, after epoch %d", after.Epoch, before.Epoch)
	}
	polltest.Until(t, "the run seen again", func() bool {
		info, err := a.Stat(t.Context(), r.ID())
		return err == nil && info.State == spool.StateRunning
	})
	for range 2 {
		if _, err := r.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	last := spool.Seq(0)
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil || e.Seq != last+1 {
			t.Fatalf("event %+v after %d: %v", e, last, err)
		}
		last = e.Seq
		text.Write(e.Bytes)
	}
	if text.String() != "one\ntwo\n" {
		t.Errorf("the log has %q", text.String())
	}
}

// TestMachineDies follows a run from another node while its machine dies and comes
// back.
func TestMachineDies(t *testing.T) {
	n := nodes(t)
	n.wipe(t)
	a := n.a.dial(t)
	n.await(t, n.w, "up")
	spec := on(n.w, backendtest.Shell("i=0; while [ $i -lt 50 ]; do echo line $i; i=$((i+1)); done; read x"))
	spec.ID, spec.Stdin = "victim", true
	r := backendtest.Start(t, a, spec)
	var seen []spool.Event
	died := false
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, e)
		if !died && strings.Contains(string(e.Bytes), "line 49\n") {
			died = true
			n.w.die()
		}
	}
	end := len(seen) - 2
	if end < 1 || seen[end].Kind != spool.KindFailed || seen[end].Seq != 0 || seen[end+1].Kind != spool.KindClosed || seen[end+1].Seq != 0 {
		t.Fatalf("the last of %d events are %+v", len(seen), seen[max(0, end-1):])
	}
	if outcome, ok := seen[end].Outcome(); !ok || outcome.Kind != spool.Unknown || !strings.Contains(outcome.Reason, "node w") {
		t.Errorf("the reader was told %v", outcome)
	}
	if node := n.await(t, n.w, "lost"); node.Reason == "" {
		t.Error("the node is lost without a reason")
	}
	lost := func(what string, info spool.Info, err error) {
		t.Helper()
		if err != nil || info.Outcome == nil || info.Outcome.Kind != spool.Unknown || !strings.Contains(info.Outcome.Reason, "lease") {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
	}
	info, err := a.Stat(t.Context(), r.ID())
	lost("stat", info, err)
	info, err = a.Start(t.Context(), spec)
	lost("the same start again", info, err)
	other := spec
	other.Argv = append([]string{"env"}, spec.Argv...)
	if _, err := a.Start(t.Context(), other); !errors.Is(err, spool.ErrExists) {
		t.Errorf("another start with the same id: %v", err)
	}
	found := false
	for info, err := range a.List(t.Context(), spool.Filter{}) {
		if found = found || info.ID == r.ID(); info.ID == r.ID() || err != nil {
			lost("list", info, err)
		}
	}
	if !found {
		t.Error("the list lacks the run")
	}
	if _, err := r.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); !errors.Is(err, spool.ErrLost) {
		t.Errorf("send: %v", err)
	}

	// It comes back with its disk: its log says what is known.
	if err := n.w.start(servertest.Binary(t)); err != nil {
		t.Fatal(err)
	}
	n.await(t, n.w, "up")
	polltest.Until(t, "the log of the machine", func() bool {
		info, err = a.Stat(t.Context(), r.ID())
		return err == nil && info.Last > 0
	})
	i := 0
	for e, err := range r.Events(context.WithoutCancel(t.Context()), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if i < end && (e.Seq != seen[i].Seq || string(e.Bytes) != string(seen[i].Bytes) || e.Kind != seen[i].Kind) {
			t.Fatalf("event %d was %+v and is %+v", i+1, seen[i], e)
		}
		i++
	}
	if i < end {
		t.Errorf("the log has %d events, and %d were seen", i, end)
	}
}
