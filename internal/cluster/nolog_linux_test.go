package cluster_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/polltest"
)

// TestNodeWithoutTheLog has a node come back without the log of a run that went on, and
// without one that was removed: nobody knows what became of the first, and the second is
// not found. It is the same if the node has lost what it said to the store, too, and says
// again what it claimed.
func TestNodeWithoutTheLog(t *testing.T) {
	t.Run("has said what it has", func(t *testing.T) { testNodeWithoutTheLog(t, false) })
	t.Run("says again what it has", func(t *testing.T) { testNodeWithoutTheLog(t, true) })
}

func testNodeWithoutTheLog(t *testing.T, again bool) {
	r := newRig(t)
	x := r.node(t, "x", 8)
	witness := filepath.Join(t.TempDir(), "witness")
	x.begin(t, x.here("removed", witness, "true"))
	await(t, x.Backend(), "removed", spool.StateClosed)
	if _, err := x.Backend().Remove(t.Context(), []spool.RunID{"removed"}, false); err != nil {
		t.Fatal(err)
	}
	spec := x.here("run", witness, "echo begun; read x")
	x.begin(t, spec)
	facts, err := natsd.Connect(natsd.Options{URL: "nats://" + r.address, Name: "reader"})
	if err != nil {
		t.Fatal(err)
	}
	defer facts.Close()
	polltest.Until(t, "output", func() bool {
		info, err := x.Backend().Stat(t.Context(), "run")
		return err == nil && info.Last > 0
	})
	if _, err := x.Backend().Rename(t.Context(), "run", "renamed"); err != nil { // so that the fact says how far its log is
		t.Fatal(err)
	}
	polltest.Until(t, "the name of the run is written", func() bool {
		f, err := facts.Get(t.Context(), "run.run")
		return err == nil && strings.Contains(string(f.Data), `"state":"held"`) && strings.Contains(string(f.Data), "renamed") && !strings.Contains(string(f.Data), `"last":0`)
	})
	x.close()
	if again {
		forgetGeneration(t, filepath.Join(x.dir, "cluster", "node.json"))
	}
	if err := os.RemoveAll(filepath.Join(x.dir, "runs")); err != nil {
		t.Fatal(err)
	}
	x.start(t)

	b := x.Backend()
	unknown := func(o *spool.Outcome) bool {
		return o != nil && o.Kind == spool.Unknown && strings.Contains(o.Reason, "node x no longer has")
	}
	var info spool.Info
	polltest.Until(t, "what the store knows of the run", func() bool {
		var err error
		info, err = b.Stat(t.Context(), "run")
		return err == nil
	})
	if info.ID != "run" || info.Node != "x" || info.State != spool.StateClosed || !unknown(info.Outcome) || len(info.Argv) != len(spec.Argv) {
		t.Errorf("the run is %+v, %v", info, info.Outcome)
	}
	page, err := b.Read(t.Context(), "run", spool.Query{})
	if err != nil || len(page.Events) > 0 || page.Failure == "" || !unknown(page.Info.Outcome) {
		t.Errorf("a page of it: %+v, %v", page, err)
	}
	var events []spool.Event
	for e, err := range b.Follow(t.Context(), "run", 0) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	if len(events) != 2 || events[0].Seq != 0 || events[1].Kind != spool.KindClosed {
		t.Fatalf("its log is %+v", events)
	}
	if outcome, ok := events[0].Outcome(); !ok || !unknown(&outcome) {
		t.Errorf("a reader is told %v", outcome)
	}
	_, err = b.Send(t.Context(), "run", spool.Input{Kind: spool.InputEOF})
	if !errors.Is(err, spool.ErrLost) {
		t.Errorf("input: %v", err)
	}
	if _, err := b.Start(t.Context(), spec); !errors.Is(err, spool.ErrExists) || !strings.Contains(err.Error(), "no longer has its log") {
		t.Errorf("a start of it: %v", err)
	}
	if _, err := b.Stat(t.Context(), "removed"); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("the run that was removed: %v", err)
	}
}

// forgetGeneration takes out of the identity of a node what it has said to the store.
func forgetGeneration(t *testing.T, name string) {
	t.Helper()
	b, err := os.ReadFile(name)
	var identity map[string]any
	if err == nil {
		err = json.Unmarshal(b, &identity)
	}
	if err != nil || identity["generation"] == nil {
		t.Fatalf("%s, %v", b, err)
	}
	delete(identity, "generation")
	if b, err = json.Marshal(identity); err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
