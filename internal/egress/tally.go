package egress

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// Flow is what was carried to and from one host and port.
type Flow struct {
	Host        string `json:"host"` // empty for all those beyond the first ones
	Port        uint16 `json:"port,omitempty"`
	Connections int64  `json:"connections"`
	UpBytes     int64  `json:"up_bytes"`   // from the run
	DownBytes   int64  `json:"down_bytes"` // to the run
	Refused     int64  `json:"refused,omitempty"`
}

// counts are those of a target. The flow's own numbers are zero.
type counts struct {
	flow             Flow
	connections      atomic.Int64
	up, down         atomic.Int64
	refused          atomic.Int64
	seenYes, seenNot bool // reported, guarded by the tally
}

// tally counts what a proxy carries. Beyond [maxTargets] all others are one.
type tally struct {
	mu   sync.Mutex
	list map[string]*counts
	rest counts
}

// of returns the counts of a target.
func (t *tally) of(host string, port uint16) *counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.find(host, port)
}

// find is like of. The caller holds t.mu.
func (t *tally) find(host string, port uint16) *counts {
	key := Target{Host: host, Port: port}.String()
	c := t.list[key]
	switch {
	case c != nil:
	case len(t.list) >= maxTargets:
		c = &t.rest
	default:
		if t.list == nil {
			t.list = make(map[string]*counts)
		}
		c = &counts{flow: Flow{Host: host, Port: port}}
		t.list[key] = c
	}
	return c
}

// first reports whether a decision is the first of its kind about its target.
func (t *tally) first(d Decision) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.find(d.Host, d.Port)
	seen := &c.seenYes
	if !d.Allowed {
		seen = &c.seenNot
		c.refused.Add(1)
	}
	was := *seen
	*seen = true
	return !was
}

// flows returns what was carried, by host and port.
func (t *tally) flows() []Flow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []Flow
	for _, c := range append(slices.Collect(maps.Values(t.list)), &t.rest) {
		f := c.flow
		f.Connections, f.UpBytes, f.DownBytes, f.Refused = c.connections.Load(), c.up.Load(), c.down.Load(), c.refused.Load()
		if f.Connections > 0 || f.Refused > 0 {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Flow) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port)) })
	return list
}

// counted is a connection to a host whose bytes are counted.
type counted struct {
	*net.TCPConn
	proxy *Proxy
	to    *counts
}

// Read implements [net.Conn].
func (c *counted) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.to.down.Add(int64(n))
	return n, err
}

// Write implements [net.Conn].
func (c *counted) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.to.up.Add(int64(n))
	return n, err
}

// Close implements [net.Conn].
func (c *counted) Close() error {
	c.proxy.mu.Lock()
	delete(c.proxy.open, c)
	c.proxy.mu.Unlock()
	return c.TCPConn.Close()
}
