package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
)

// TestOffersAreBounded makes offers that are too long, or none.
func TestOffersAreBounded(t *testing.T) {
	long, err := json.Marshal(offer{Node: "x", Runs: make([]offered, offerRuns+1)})
	if err != nil {
		t.Fatal(err)
	}
	for what, question := range map[string]string{"too long": string(long), "no JSON": "x"} {
		if _, err := new(Copies).Inspect(t.Context(), "r", json.RawMessage(question)); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMirrorsAreSpread checks who copies runs: each node about as many, none that is lost or
// drains, never the owner; and few runs change when a node comes.
func TestMirrorsAreSpread(t *testing.T) {
	m := newMembers(nil)
	owner := newMirroring(&Options{Name: "n0", Mirrors: 1}, m, nil, nil)
	if got := owner.choose("r"); got != "" {
		t.Errorf("without nodes a run is copied by %q", got)
	}
	for i := range 6 {
		state := nodeUp
		switch i {
		case 4:
			state = nodeDraining
		case 5:
			state = nodeLost
		}
		m.saw(nodeRecord{Name: fmt.Sprint("n", i), State: state}, uint64(i+1))
	}
	const runs = 3000
	count, before := make(map[string]int), make(map[spool.RunID]string)
	for i := range runs {
		id := spool.RunID(fmt.Sprint("run", i))
		before[id] = owner.choose(id)
		count[before[id]]++
	}
	if len(count) != 3 || count["n1"] < 800 || count["n2"] < 800 || count["n3"] < 800 {
		t.Errorf("%d runs are copied by %v", runs, count)
	}
	m.saw(nodeRecord{Name: "n4", State: nodeUp}, 100)
	for id, node := range before {
		if now := owner.choose(id); now != node && now != "n4" {
			t.Fatalf("run %s was copied by %s and would be by %s", id, node, now)
		}
	}
	off := newMirroring(&Options{Name: "n0"}, m, nil, nil)
	if got := off.choose("r"); got != "" {
		t.Errorf("a run is copied by %q, and nobody asked for that", got)
	}
}
