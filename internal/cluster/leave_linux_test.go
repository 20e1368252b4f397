package cluster_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/polltest"
)

// TestLeaveTellsWhatEnded has a node leave that came back just before and has not told
// the store yet that its run has ended: it tells it first.
func TestLeaveTellsWhatEnded(t *testing.T) {
	r := newRig(t)
	x := r.node(t, "x", 8)
	x.begin(t, x.here("run", filepath.Join(t.TempDir(), "witness"), "read x"))
	facts, err := natsd.Connect(natsd.Options{URL: "nats://" + r.address, Name: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	defer facts.Close()
	says := func(state string) bool {
		f, err := facts.Get(t.Context(), "run.run")
		return err == nil && strings.Contains(string(f.Data), `"state":"`+state+`"`)
	}
	polltest.Until(t, "the run is written", func() bool { return says("held") })
	x.close() // which ends the run

	defer failpoint.Enable("cluster.assert", 1, failpoint.Fail(failpoint.ErrInjected))()
	x.start(t)
	if !says("held") {
		t.Fatal("the end of the run is written before the node is asked to leave")
	}
	if err := x.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !says("closed") {
		t.Error("the node has left, and the store does not know that its run has ended")
	}
}
