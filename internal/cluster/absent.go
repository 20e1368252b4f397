package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"
)

// How long what the store says about the runs of absent nodes is not read again.
const (
	absentLost = time.Second // a run of a lost node may be started again elsewhere
	absentGone = time.Minute // the runs of a node that left do not change
)

// absent is what the store knows about the runs of nodes that cannot be asked, because
// they are lost or have left. It is read when somebody lists runs, for all of these
// nodes at once, and not for every list.
type absent struct {
	facts   *store
	members *members

	mu    sync.Mutex // also held while the store is read: others wait for the same answer
	nodes []string   // that were absent
	read  time.Time
	keep  time.Duration
	runs  map[string][]runRecord
}

func newAbsent(facts *store, m *members) *absent { return &absent{facts: facts, members: m} }

// of returns the runs of an absent node.
func (a *absent) of(ctx context.Context, node string) ([]runRecord, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var nodes []string // with their epochs, for one that comes and goes has other runs
	keep := absentGone
	all, _ := a.members.all()
	for i := range all {
		if n := &all[i]; !n.holds() {
			nodes = append(nodes, fmt.Sprintf("%s %d", n.Name, n.rev))
			if n.State == nodeLost {
				keep = absentLost
			}
		}
	}
	if slices.Equal(nodes, a.nodes) && time.Since(a.read) < a.keep {
		return a.runs[node], nil
	}
	began, runs := time.Now(), make(map[string][]runRecord)
	for fact, err := range a.facts.All(ctx, runPrefix) {
		if err != nil {
			return nil, err
		}
		var rec runRecord
		if json.Unmarshal(fact.Data, &rec) != nil || rec.State == runFailed {
			continue
		}
		if n, ok := a.members.get(rec.Node); ok && !n.holds() {
			runs[rec.Node] = append(runs[rec.Node], rec)
		}
	}
	a.nodes, a.read, a.keep, a.runs = nodes, began, keep, runs
	return runs[node], nil
}
