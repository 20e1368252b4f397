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
	Cluster string      `json:"cluster"`
	Node    string      `json:"node"`
	Epoch   uint64      `json:"epoch"`
	Lease   bool        `json:"lease"` // this node holds its lease
	LeaseMs int64       `json:"lease_ms"`
	Store   StoreStatus `json:"store"`
	// Generation is how often the store began anew, from 1 on.
	Generation uint64 `json:"generation"`
	// Rebuild is nil unless the store went back in time and not all nodes have said
	// again what they have.
	Rebuild *Rebuild    `json:"rebuild,omitempty"`
	Relay   RelayStatus `json:"relay"` // what this node relays for others
	// Mirror says how the copies of logs are; nil if this node makes none and asks for
	// none.
	Mirror *MirrorStatus `json:"mirror,omitempty"`
	Nodes  []spool.Node  `json:"nodes"`
}

// Rebuild says why nothing is started.
type Rebuild struct {
	Reason  string    `json:"reason"`
	By      string    `json:"by"` // the node that noticed it
	Since   time.Time `json:"since"`
	Back    []string  `json:"back"`    // nodes that have said again what they have
	Missing []string  `json:"missing"` // nodes that have not
}

// Nodes describes all nodes.
func (n *Node) Nodes() []spool.Node {
	members, _ := n.members.all()
	nodes := make([]spool.Node, 0, len(members))
	for _, m := range members {
		via := m.Relays
		if by := n.peers.via(m.Name); by != "" {
			via = []string{by}
		}
		nodes = append(nodes, spool.Node{
			Name: m.Name, State: string(m.State), Reason: m.Reason, Address: m.Addr, Via: via, Control: m.Control, Build: m.Build, Labels: m.Labels,
			Epoch: m.Epoch, Cores: m.Cores, MemoryBytes: m.Memory, MemoryFreeBytes: m.Free, Engines: m.Engines, Slots: m.Slots, Live: m.Live, Joined: m.Joined, Self: m.Name == n.opts.Name,
		})
	}
	return nodes
}

// Status describes the cluster. The caller adds its name and the store.
func (n *Node) Status() Status {
	epoch, held := n.session.held()
	meta, _, _ := n.store.state()
	s := Status{Node: n.opts.Name, Epoch: epoch, Lease: held, LeaseMs: int64(n.opts.Timing.TTL / time.Millisecond), Generation: meta.Generation, Relay: n.relay.status(), Nodes: n.Nodes()}
	if meta.Rebuilding {
		s.Rebuild = &Rebuild{Reason: meta.Reason, By: meta.By, Since: meta.Since, Back: append([]string{}, meta.Back...), Missing: append([]string{}, meta.missing()...)}
	}
	var m MirrorStatus
	n.copying.status(&m)
	n.owner.mirrors.status(&m)
	if n.opts.Mirrors > 0 || m.Copies > 0 {
		s.Mirror = &m
	}
	return s
}
