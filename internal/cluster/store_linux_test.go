package cluster_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
)

// TestStartWithoutAStore checks that a node whose store does not answer starts nothing
// and says so, and still answers for the runs that it has.
func TestStartWithoutAStore(t *testing.T) {
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	facts, err := natsd.Connect(natsd.Options{URL: "nats://127.0.0.1:1", Name: "alone"})
	if err != nil {
		t.Fatal(err)
	}
	defer facts.Close()
	n, err := cluster.Join(cluster.Options{State: t.TempDir(), Name: "alone", Backend: h, Facts: facts, Timing: cluster.NewTiming(time.Second), Judge: true, Slots: 1, Claim: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	r := backendtest.Start(t, h, backendtest.Shell("echo here"))
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	var refused *spool.StartError
	if _, err := n.Backend().Start(t.Context(), backendtest.Shell("true")); !errors.As(err, &refused) || !errors.Is(err, cluster.ErrUndecided) || refused.Hint == "" {
		t.Errorf("a start without a store: %v", err)
	}
	if info, err := n.Backend().Stat(t.Context(), r.ID()); err != nil || info.Node != "alone" || info.State != spool.StateClosed {
		t.Errorf("a run of the node: %+v, %v", info, err)
	}
	for info, err := range n.Backend().List(t.Context(), spool.Filter{}) {
		if (err != nil || info.ID != r.ID()) && !errors.Is(err, cluster.ErrUndecided) { // the queue is not known
			t.Errorf("the list has %+v, %v", info, err)
		}
	}
}
