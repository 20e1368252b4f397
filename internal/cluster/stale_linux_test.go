package cluster_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/host/backendtest"
)

// staleFacts is a store whose former leader answers what is read: what is written, it
// does not decide.
type staleFacts struct {
	*natsd.Facts
	stale atomic.Bool
}

// Last says how far the store was long ago.
func (f *staleFacts) Last(ctx context.Context, prefix string) (uint64, error) {
	if f.stale.Load() {
		return 0, nil
	}
	return f.Facts.Last(ctx, prefix)
}

// Links says that there is another connection.
func (f *staleFacts) Links() uint64 {
	if f.stale.Load() {
		return f.Facts.Links() + 1
	}
	return f.Facts.Links()
}

// TestStaleLeader has a node connect to a store that reads an older state than it has,
// as a server does that was stopped while it led the store. The node does not believe that
// the store went back in time, for what it writes comes after all that it knows.
func TestStaleLeader(t *testing.T) {
	s := store(t)
	nats, err := natsd.Connect(natsd.Options{Server: s, Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer nats.Close()
	facts := &staleFacts{Facts: nats}
	n, err := cluster.Join(cluster.Options{State: t.TempDir(), Name: "x", Backend: newWitness(), Facts: facts, Timing: cluster.NewTiming(time.Minute), Slots: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for range 2 {
		if _, err := n.Local().Start(t.Context(), backendtest.Shell("true")); err != nil {
			t.Fatal(err)
		}
		if st := n.Status(); st.Generation != 1 {
			t.Errorf("the store is in generation %d: %+v", st.Generation, st.Rebuild)
		}
		facts.stale.Store(true)
	}
	if _, err := nats.Get(t.Context(), "name._x"); err != nil {
		t.Errorf("no write decided: %v", err)
	}
}
