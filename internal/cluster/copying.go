package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/mirror"
)

// Times of copies.
const (
	// copyAgain is how long a copy waits before it goes on after an error.
	copyAgain = 500 * time.Millisecond
	// copyFull is the same after there was no room.
	copyFull = 30 * time.Second
	// copyChecks is of how many runs it asks at a time whether they still exist.
	copyChecks = 256
	// checkTimeout bounds one such question.
	checkTimeout = 5 * time.Second
)

// copying is the copies that this node makes of the runs of others. It follows each of
// these runs as any reader does, also if it hears nothing from their nodes, and also after
// it was restarted.
type copying struct {
	self     string
	copies   *mirror.Copies
	peers    *peers
	members  *members
	facts    *store
	archived func(context.Context, spool.RunID) (bool, error) // nil without an archive
	age      time.Duration                                    // zero means that copies do not age
	every    time.Duration                                    // how often it looks which copies are not needed any more
	tasks    *tasks
	log      *slog.Logger

	mu      sync.Mutex
	runs    map[spool.RunID]*copied
	checked spool.RunID // where the last sweep ended
}

// copied is a run that is being copied.
type copied struct {
	node    string
	stop    context.CancelFunc
	ended   chan struct{}
	heard   time.Time // when its node last offered it
	stopped string    // why there is no room for it
	last    spool.Seq // where it stopped
}

func newCopying(o *Options, copies *mirror.Copies, p *peers, m *members, facts *store, t *tasks) *copying {
	return &copying{self: o.Name, copies: copies, peers: p, members: m, facts: facts, archived: o.Archived, age: o.MirrorAge, every: o.Timing.TTL, tasks: t, log: o.Log, runs: make(map[spool.RunID]*copied)}
}

// start goes on with the copies that an earlier server began.
func (c *copying) start() {
	for _, s := range c.copies.All() {
		if !s.Complete {
			c.begin(s.Source.Node, s.Run)
		}
	}
	c.tasks.start(c.sweep)
}

// take takes an offer.
func (c *copying) take(o *offer) taken {
	t := taken{Runs: make([]takenRun, 0, len(o.Runs))}
	if _, ok := c.members.get(o.Node); !ok || o.Node == c.self {
		return t
	}
	for _, r := range o.Runs {
		if r.ID.Check() != nil {
			continue
		}
		s, _ := c.copies.Of(r.ID)
		if !s.Complete || s.Source.Node != o.Node {
			c.begin(o.Node, r.ID)
		}
		c.copies.Hear(r.ID, r.Last)
		t.Runs = append(t.Runs, takenRun{ID: r.ID, Last: s.Last, Complete: s.Complete, Stopped: c.whyStopped(r.ID, s.Last)})
	}
	return t
}

// whyStopped returns why there is no room for a run; empty if it goes on.
func (c *copying) whyStopped(id spool.RunID, last spool.Seq) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.runs[id]
	if r == nil {
		return ""
	}
	if last > r.last {
		r.stopped = ""
	}
	return r.stopped
}

// begin has a run copied, if it is not.
func (c *copying) begin(node string, id spool.RunID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.runs[id]; r != nil {
		r.heard = time.Now()
		return
	}
	ctx, stop := context.WithCancel(c.tasks.ctx)
	r := &copied{node: node, stop: stop, ended: make(chan struct{}), heard: time.Now()}
	c.runs[id] = r
	c.tasks.start(func(context.Context) {
		defer stop()
		c.follow(ctx, id, r)
		c.mu.Lock()
		delete(c.runs, id)
		c.mu.Unlock()
		close(r.ended)
	})
}

// follow copies a run until its log is complete, its node does not have it any more, or the
// context ends.
func (c *copying) follow(ctx context.Context, id spool.RunID, r *copied) {
	for ctx.Err() == nil {
		changed := c.members.changes()
		err := c.copy(ctx, id, r.node)
		wait := copyAgain
		switch {
		case err == nil:
			return
		case errors.Is(err, spool.ErrNotFound) && c.isRemoved(ctx, id):
			if err := c.copies.Remove(id); err != nil {
				c.log.Warn("the copy of a run that was removed stays", "run", id, "err", err)
			}
			return
		case errors.Is(err, spool.ErrNotFound): // its node has another disk
			wait = copyFull
		case errors.Is(err, mirror.ErrFull):
			if c.setStopped(id, r, err.Error()) {
				c.log.Warn("a run is not copied any further", "run", id, "node", r.node, "err", err)
			}
			wait, changed = copyFull, nil
		}
		if n, ok := c.members.get(r.node); !ok || !n.holds() {
			wait = max(wait, copyFull) // until it is back
		}
		pause(ctx, wait, changed)
	}
}

// setStopped notes why there is no room for a run. It reports whether that is news.
func (c *copying) setStopped(id spool.RunID, r *copied, why string) bool {
	s, _ := c.copies.Of(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	news := r.stopped == ""
	r.stopped, r.last = why, s.Last
	return news
}

// copy copies a run over one connection.
func (c *copying) copy(ctx context.Context, id spool.RunID, node string) error {
	n, ok := c.members.get(node)
	if !ok {
		return &unreachableError{errors.New("its node is not known")}
	}
	p, err := c.peers.get(ctx, node)
	if err != nil {
		return err
	}
	err = c.copies.Copy(ctx, id, mirror.Source{Node: node, Machine: n.ID}, p)
	if isCut(err) && ctx.Err() == nil {
		c.peers.drop(node, p)
	}
	return err
}

// isRemoved reports whether a run that its node does not have was removed there, or never
// started. A machine with another disk has none of the runs, and then the copy is all there
// is.
func (c *copying) isRemoved(ctx context.Context, id spool.RunID) bool {
	s, ok := c.copies.Of(id)
	if !ok {
		return true
	}
	n, known := c.members.get(s.Source.Node)
	return known && n.holds() && n.ID == s.Source.Machine && ctx.Err() == nil
}

// sweep deletes copies that nobody needs any more, until the context ends.
func (c *copying) sweep(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, c.every, nil)
		if c.age > 0 {
			if err := c.copies.Expire(c.age); err != nil {
				c.log.Warn("old copies of logs stay", "err", err)
			}
		}
		for _, s := range c.next() {
			if ctx.Err() != nil {
				return
			}
			if c.isNeeded(ctx, &s) {
				continue
			}
			c.end(s.Run)
			if err := c.copies.Remove(s.Run); err != nil {
				c.log.Warn("a copy of a log that is not needed stays", "run", s.Run, "err", err)
			}
		}
	}
}

// next returns the copies that are looked after now, all in turn.
func (c *copying) next() []mirror.State {
	all := c.copies.All()
	slices.SortFunc(all, func(a, b mirror.State) int { return cmp.Compare(a.Run, b.Run) })
	c.mu.Lock()
	defer c.mu.Unlock()
	var some []mirror.State
	for _, s := range all {
		if s.Run > c.checked && len(some) < copyChecks {
			some = append(some, s)
		}
	}
	c.checked = ""
	if len(some) == copyChecks {
		c.checked = some[copyChecks-1].Run
	}
	return some
}

// end stops copying a run.
func (c *copying) end(id spool.RunID) {
	c.mu.Lock()
	r := c.runs[id]
	c.mu.Unlock()
	if r != nil {
		r.stop()
		<-r.ended
	}
}

// isNeeded reports whether a copy must be kept: until its run was removed or archived, or
// another node copies it.
func (c *copying) isNeeded(ctx context.Context, s *mirror.State) bool {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	n, known := c.members.get(s.Source.Node)
	if s.Complete {
		if c.archived != nil {
			if has, err := c.archived(ctx, s.Run); err == nil && has {
				return false
			}
		}
		if !known || !n.holds() {
			return true
		}
		p, err := c.peers.get(ctx, s.Source.Node)
		if err == nil {
			_, err = p.Stat(ctx, s.Run)
		}
		return !errors.Is(err, spool.ErrNotFound) || !c.isRemoved(ctx, s.Run)
	}
	c.mu.Lock()
	r := c.runs[s.Run]
	offered := r != nil && time.Since(r.heard) < 4*c.every
	c.mu.Unlock()
	if offered || !known || !n.holds() {
		return true
	}
	// Its node lives and does not speak of it.
	rec, _, err := c.facts.run(ctx, s.Run)
	return err != nil || rec.Mirror == "" || rec.Mirror == c.self
}

// status fills in what is known of the copies of this node.
func (c *copying) status(s *MirrorStatus) {
	for _, state := range c.copies.All() {
		s.Copies++
		if !state.Complete {
			s.Incomplete++
		}
	}
	s.CopyBytes, s.CopyLimit = c.copies.Bytes(), c.copies.Limit()
}
