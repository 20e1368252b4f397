package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// In a small cluster every node hears every renewal of a lease. The messages grow with
// the square of the nodes, so in a crowd only the nodes that judge others hear all of
// them. The others are told of what matters to them: that a node came, left, is lost or
// is much fuller than it was. What they miss, they read now and then, and when a node
// does not answer.

// defaultCrowd is how many nodes are a crowd.
const defaultCrowd = 64

// newsPrefix begins the keys of the facts that tell of nodes.
const newsPrefix = "meta.node-"

// newsRecord tells of a node.
type newsRecord struct {
	Version int        `json:"v"`
	Node    nodeRecord `json:"node"`
	Rev     uint64     `json:"rev"` // of the lease
	Nonce   string     `json:"nonce"`
}

// isNews reports whether a lease is news for nodes that know an earlier one.
func (n *nodeRecord) isNews(old *nodeRecord) bool {
	fuller := n.Live - old.Live
	return n.Epoch != old.Epoch || n.State != old.State || n.Addr != old.Addr || !slices.Equal(n.Relays, old.Relays) || max(fuller, -fuller) >= max(1, n.Slots/8)
}

// crowd is how a node hears of others in a large cluster.
type crowd struct {
	size    int // how many nodes are one
	facts   *store
	members *members
	tasks   *tasks
	judge   bool

	told   nodeRecord // what the others were last told of this node
	stop   func()     // ends the watch of all leases; nil without it
	begin  func() (stop func(), err error)
	looked map[string]time.Time // when the lease of a node was last read
}

// isOne reports whether there are so many nodes. A node tells its news before others rely
// on that.
func (c *crowd) isOne(size int) bool { return c.members.count() > size }

// listen begins or ends the watch of all leases.
func (c *crowd) listen() (err error) {
	switch {
	case c.judge:
	case c.stop != nil && c.isOne(c.size):
		c.stop()
		c.stop = nil
	case c.stop == nil && !c.isOne(c.size*3/4):
		c.stop, err = c.begin()
	}
	return err
}

// end ends the watch.
func (c *crowd) end() {
	if c.stop != nil {
		c.stop()
	}
}

// every returns how often a node reads what it may have missed, instead of so often.
func (c *crowd) every(often time.Duration) time.Duration {
	if c.judge || !c.isOne(c.size) {
		return often
	}
	often *= time.Duration(c.members.count() / c.size)
	return often + rand.N(often) // not all at once
}

// renewed is called with every lease of this node that was written.
func (c *crowd) renewed(rec nodeRecord, rev uint64) {
	if !c.judge { // else it must come back through the store
		c.members.saw(rec, rev)
	}
	if rec.isNews(&c.told) && c.isOne(c.size/2) {
		c.told = rec
		c.tell(rec, rev)
	}
}

// tell tells all nodes of one, some time later.
func (c *crowd) tell(rec nodeRecord, rev uint64) {
	if !c.isOne(c.size / 2) {
		return
	}
	c.tasks.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		for {
			f, err := c.facts.Get(ctx, newsPrefix+rec.Name)
			var is newsRecord
			if err == nil && json.Unmarshal(f.Data, &is) == nil && is.Rev >= rev {
				return // somebody told more
			}
			if err != nil && !errors.Is(err, ErrNoFact) {
				return
			}
			news := newsRecord{Version: 1, Node: rec, Rev: rev, Nonce: newNonce()}
			_, err = c.facts.Put(ctx, Fact{Key: newsPrefix + rec.Name, Data: encode(&news)}, f.Rev, 0)
			if !errors.Is(err, ErrConflict) {
				return // else they read it
			}
		}
	})
}

// hear takes news.
func (c *crowd) hear(f Fact) {
	var news newsRecord
	if strings.HasPrefix(f.Key, newsPrefix) && json.Unmarshal(f.Data, &news) == nil && generationOf(news.Rev) == c.facts.generation() {
		c.members.saw(news.Node, news.Rev)
	}
}

// look reads the lease of a node that does not answer, if nobody would tell.
func (c *crowd) look(ctx context.Context, node string) {
	if c.judge || !c.isOne(c.size*3/4) {
		return
	}
	c.members.mu.Lock()
	due := time.Since(c.looked[node]) > c.facts.timing.Renew
	if due {
		c.looked[node] = time.Now()
	}
	c.members.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	var rec nodeRecord
	if f, err := c.facts.Get(ctx, nodePrefix+node); err == nil && json.Unmarshal(f.Data, &rec) == nil {
		c.members.saw(rec, f.Rev)
	}
}
