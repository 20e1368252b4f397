package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// detector fences nodes that do not renew their leases. It measures silence with a
// clock of its own, which stands still while it does not see its own renewals come
// back and after it was stopped itself: a store that is away, a watch that is stuck or
// a pause of this process are no evidence against anybody.
type detector struct {
	facts  Facts
	self   string
	timing Timing
	log    *slog.Logger
	fenced func(nodeRecord, uint64) // is called with every node that this one fences

	mu    sync.Mutex
	seen  map[string]*sighting
	alive time.Time     // when our own renewal was last seen
	clock time.Duration // how long we were able to see, all in all
}

// sighting is what was last seen of a node.
type sighting struct {
	rec nodeRecord
	rev uint64
	at  time.Duration // on the clock of the detector
}

func newDetector(facts Facts, self string, t Timing, log *slog.Logger) *detector {
	return &detector{facts: facts, self: self, timing: t, log: log, fenced: func(nodeRecord, uint64) {}, seen: make(map[string]*sighting)}
}

// saw takes a record that was written.
func (d *detector) saw(rec nodeRecord, rev uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.seen[rec.Name]; old != nil && rev <= old.rev {
		return
	}
	d.seen[rec.Name] = &sighting{rec, rev, d.clock}
	if rec.Name == d.self {
		d.alive = time.Now()
	}
}

// run watches until the context ends. load reads all records once.
func (d *detector) run(ctx context.Context, load func(context.Context) error) {
	blind, settling := true, time.Duration(0)
	last := time.Now()
	for {
		pause(ctx, d.timing.tick(), nil)
		if ctx.Err() != nil {
			return
		}
		now := time.Now()
		passed := now.Sub(last)
		last = now
		d.mu.Lock()
		sees := now.Sub(d.alive) < 2*d.timing.Renew && passed < d.timing.Renew
		d.mu.Unlock()
		switch {
		case !sees:
			blind = true
		case blind:
			lctx, cancel := context.WithTimeout(ctx, d.timing.TTL)
			err := load(lctx) // what was missed
			cancel()
			if err == nil {
				blind, settling = false, d.timing.Renew // for others to come back
			}
			last = time.Now()
		case settling > 0:
			settling -= passed
		default:
			for _, s := range d.silent(passed) {
				d.fence(ctx, s)
			}
		}
	}
}

// silent moves the clock on, and returns the nodes that did not renew for too long.
func (d *detector) silent(passed time.Duration) []sighting {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clock += passed
	var all []sighting
	for _, s := range d.seen {
		if s.rec.holds() && d.clock-s.at > d.timing.TTL && s.rec.Name != d.self {
			all = append(all, *s)
		}
	}
	return all
}

// fence takes the lease of a node, unless the node renewed it in the last moment.
func (d *detector) fence(ctx context.Context, s sighting) {
	rec := s.rec
	rec.State, rec.Lost, rec.By, rec.Nonce = nodeLost, max(rec.Lost, rec.Epoch), d.self, newNonce()
	rec.Reason = fmt.Sprintf("it did not renew its lease for %v", d.timing.TTL)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	rev, err := d.facts.Put(ctx, Fact{Key: nodePrefix + rec.Name, Data: encode(&rec)}, s.rev, 0)
	switch {
	case err == nil:
		d.saw(rec, rev)
		d.fenced(rec, rev)
		d.log.Warn("a node is lost", "node", rec.Name, "epoch", rec.Epoch)
	case errors.Is(err, ErrConflict): // it renewed, or somebody else was faster
		var is nodeRecord
		f, err := d.facts.Get(ctx, nodePrefix+rec.Name)
		if err == nil && json.Unmarshal(f.Data, &is) == nil {
			d.saw(is, f.Rev)
		} else if errors.Is(err, ErrNoFact) { // the store has forgotten the node, and so cannot lose it
			if rev, err := d.facts.Put(ctx, Fact{Key: nodePrefix + rec.Name, Data: encode(&rec)}, 0, 0); err == nil {
				d.saw(rec, rev)
			}
		}
	}
}
