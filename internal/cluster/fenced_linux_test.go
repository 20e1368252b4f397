package cluster_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/polltest"
)

// TestFencedWhileStarting fences a node between the claim of a run and its start. The
// node begins a new epoch, in which it takes back the claims that it gave up before, and
// not that of the start which is under way: no other node starts that run.
func TestFencedWhileStarting(t *testing.T) {
	s := store(t)
	timing := cluster.Timing{TTL: time.Minute, Renew: 100 * time.Millisecond}
	slow, _ := join(t, s, cluster.Options{Name: "slow", Slots: 8, Timing: timing})
	other, _ := join(t, s, cluster.Options{Name: "other", Slots: 8, Timing: timing})
	facts, err := natsd.Connect(natsd.Options{Server: s, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer facts.Close()
	witness := filepath.Join(t.TempDir(), "witness")
	spec := backendtest.Shell("echo once >> " + witness)
	spec.ID = "once"

	claimed, goOn, started := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	defer failpoint.Enable("cluster.claimed", 1, func() error {
		close(claimed)
		<-goOn
		return nil
	})()
	go func() {
		_, err := slow.Local().Start(t.Context(), spec)
		started <- err
	}()
	<-claimed
	// What it gave up is written after that, and so it is taken back after it.
	if _, err := facts.Put(t.Context(), cluster.Fact{Key: "run.given-up", Data: []byte(`{"v":1,"id":"given-up","node":"slow","epoch":1,"state":"claimed"}`)}, 0, 0); err != nil {
		t.Fatal(err)
	}
	fence(t, facts, "slow")
	polltest.Until(t, "the claim that was given up is taken back", func() bool { return fact(t, facts, "run.given-up").State == "failed" })
	if _, err := other.Local().Start(t.Context(), spec); !errors.Is(err, spool.ErrExists) {
		t.Errorf("another node starts the run: %v", err)
	}
	close(goOn)
	if err := <-started; err != nil {
		t.Errorf("the start that was under way: %v", err)
	}
	await(t, slow.Local(), "once", spool.StateClosed)
	polltest.Until(t, "the end of the run in the store", func() bool { return fact(t, facts, "run.once").State == "closed" })
	if got := lines(t, witness); !slices.Equal(got, []string{"once"}) {
		t.Errorf("executed were %q", got)
	}
}

// fence says of a node in its first epoch that it is lost, as a judge does.
func fence(t *testing.T, facts *natsd.Facts, name string) {
	t.Helper()
	polltest.Until(t, "node "+name+" fenced", func() bool {
		f, err := facts.Get(t.Context(), "node."+name)
		if err != nil {
			t.Fatal(err)
		}
		var rec map[string]any
		if err := json.Unmarshal(f.Data, &rec); err != nil {
			t.Fatal(err)
		}
		rec["state"], rec["lost"], rec["nonce"] = "lost", 1, "fence"
		if f.Data, err = json.Marshal(rec); err != nil {
			t.Fatal(err)
		}
		_, err = facts.Put(t.Context(), f, f.Rev, 0)
		if err != nil && !errors.Is(err, cluster.ErrConflict) { // it has just renewed its lease
			t.Fatal(err)
		}
		return err == nil
	})
}
