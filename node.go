package spool

import "time"

// Node is a machine of a cluster.
type Node struct {
	Name string `json:"name"`
	// State is up; draining if the node takes no new runs; lost if it did not renew
	// its lease, so that nobody knows what became of its runs; or gone if it left.
	State   string            `json:"state"`
	Reason  string            `json:"reason,omitempty"` // why it is lost
	Address string            `json:"address"`          // where other nodes connect; empty if they cannot
	Via     []string          `json:"via,omitempty"`    // the nodes through which it is reached, if it is not directly
	Control bool              `json:"control,omitempty"`
	Build   string            `json:"build,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Epoch   uint64            `json:"epoch"` // grows whenever the node joins
	Cores   int               `json:"cores,omitempty"`
	// MemoryBytes is what the node has, and MemoryFreeBytes what was free of it at its
	// last renewal.
	MemoryBytes     int64 `json:"memory_bytes,omitempty"`
	MemoryFreeBytes int64 `json:"memory_free_bytes,omitempty"`
	// Engines are those that the node has what they need for, and agent/NAME for each
	// coding agent that is installed there.
	Engines []string  `json:"engines,omitempty"`
	Slots   int       `json:"slots"` // live runs that it takes
	Live    int       `json:"live"`  // runs that it has, as of its last renewal
	Joined  time.Time `json:"joined,omitzero"`
	Self    bool      `json:"self,omitempty"` // it is the one that answers
}
