package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
)

// members is what this node knows about all nodes.
type members struct {
	facts Facts

	mu      sync.Mutex
	nodes   map[string]member
	order   []string      // the names, sorted
	list    []member      // all nodes in this order; nil if it must be made again
	changed chan struct{} // closed and replaced when a state changes
	loaded  bool
	told    []func(nodeRecord, uint64) // each is called with every record that is seen
}

// member is what is known about a node.
type member struct {
	nodeRecord
	rev uint64
	// placed is how many runs were sent there since the record.
	placed int
}

func newMembers(facts Facts) *members {
	return &members{facts: facts, nodes: make(map[string]member), changed: make(chan struct{})}
}

// watch keeps the list current until stop is called.
func (m *members) watch() (stop func(), err error) {
	return m.facts.Watch(nodePrefix, func(f Fact) {
		var rec nodeRecord
		if json.Unmarshal(f.Data, &rec) == nil {
			m.saw(rec, f.Rev)
		}
	})
}

// saw takes a record.
func (m *members) saw(rec nodeRecord, rev uint64) {
	m.mu.Lock()
	old, known := m.nodes[rec.Name]
	if known && rev <= old.rev {
		m.mu.Unlock()
		return
	}
	if !known {
		at, _ := slices.BinarySearch(m.order, rec.Name)
		m.order = slices.Insert(m.order, at, rec.Name)
	}
	m.nodes[rec.Name], m.list = member{nodeRecord: rec, rev: rev}, nil
	if !known || old.State != rec.State || old.Epoch != rec.Epoch || old.Addr != rec.Addr || !slices.Equal(old.Relays, rec.Relays) {
		close(m.changed)
		m.changed = make(chan struct{})
	}
	m.mu.Unlock()
	for _, tell := range m.told {
		tell(rec, rev)
	}
}

// load reads all records.
func (m *members) load(ctx context.Context) error {
	for f, err := range m.facts.All(ctx, nodePrefix) {
		if err != nil {
			return fmt.Errorf("read the nodes of the cluster: %w", err)
		}
		var rec nodeRecord
		if json.Unmarshal(f.Data, &rec) == nil {
			m.saw(rec, f.Rev)
		}
	}
	m.mu.Lock()
	m.loaded = true
	m.mu.Unlock()
	return nil
}

// isLoaded reports whether all nodes are known.
func (m *members) isLoaded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.loaded
}

// get returns what is known about a node.
func (m *members) get(name string) (member, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.nodes[name]
	return n, ok
}

// all returns all nodes, by their names, and a channel that is closed when one of them
// changes. The list is shared: nobody changes it.
func (m *members) all() ([]member, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.list == nil {
		m.list = make([]member, len(m.order))
		for i, name := range m.order {
			m.list[i] = m.nodes[name]
		}
	}
	return m.list, m.changed
}

// count returns how many nodes there are.
func (m *members) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.order)
}

// changes returns the channel of all.
func (m *members) changes() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// place counts a run that was sent to a node.
func (m *members) place(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, ok := m.nodes[name]; ok {
		n.placed++
		m.nodes[name], m.list = n, nil
	}
}

// names returns the names of nodes that have not left.
func (m *members) names() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, name := range m.order {
		if m.nodes[name].State != nodeGone {
			names = append(names, name)
		}
	}
	return names
}
