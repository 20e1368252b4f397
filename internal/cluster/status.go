package cluster

import (
	"time"

	"github.com/spool-run/spool"
)

// StoreStatus says how the store of the cluster is.
type StoreStatus struct {
	Connected bool           `json:"connected"`
	URL       string         `json:"url,omitempty"`
	Outages   int64          `json:"outages"` // since the start of this node
	Streams   []StreamStatus `json:"streams"`
}

// StreamStatus says how a part of the store is.
type StreamStatus struct {
	Name    string `json:"name"`
	Leader  string `json:"leader,omitempty"`
	Current int    `json:"current"` // servers that have all of it
	Facts   int64  `json:"facts"`
	Bytes   int64  `json:"bytes"`
	Error   string `json:"error,omitempty"`
}

// Status says how the cluster is, as one of its nodes sees it.
type Status struct {
	Cluster string       `json:"cluster"`
	Node    string       `json:"node"`
	Epoch   uint64       `json:"epoch"`
	Lease   bool         `json:"lease"` // this node holds its lease
	LeaseMs int64        `json:"lease_ms"`
	Store   StoreStatus  `json:"store"`
	Nodes   []spool.Node `json:"nodes"`
}

// Nodes describes all nodes.
func (n *Node) Nodes() []spool.Node {
	members, _ := n.members.all()
	nodes := make([]spool.Node, 0, len(members))
	for _, m := range members {
		nodes = append(nodes, spool.Node{
			Name: m.Name, State: string(m.State), Reason: m.Reason, Address: m.Addr, Control: m.Control, Build: m.Build, Labels: m.Labels,
			Epoch: m.Epoch, Cores: m.Cores, MemoryBytes: m.Memory, MemoryFreeBytes: m.Free, Engines: m.Engines, Slots: m.Slots, Live: m.Live, Joined: m.Joined, Self: m.Name == n.opts.Name,
		})
	}
	return nodes
}

// Status describes the cluster. The caller adds its name and the store.
func (n *Node) Status() Status {
	epoch, held := n.session.held()
	return Status{Node: n.opts.Name, Epoch: epoch, Lease: held, LeaseMs: int64(n.opts.Timing.TTL / time.Millisecond), Nodes: n.Nodes()}
}
