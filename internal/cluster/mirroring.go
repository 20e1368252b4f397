package cluster

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// MaxMirrors is how many other nodes may copy the log of a run.
const MaxMirrors = 1

// Times of mirrors.
const (
	// offerEvery is how often a node tells others which of its runs they copy, and
	// learns how far they are.
	offerEvery = time.Second
	// offerPause is the shortest time between two offers to a node.
	offerPause = 50 * time.Millisecond
	// offerTimeout bounds an offer.
	offerTimeout = 5 * time.Second
	// offerEnded is for how long a run that has ended is offered, if its copy is not
	// complete: the node that copies it knows of it and goes on by itself.
	offerEnded = 10 * time.Minute
)

// mirroring has other nodes copy the logs of the runs of this one. Runs do not wait for it,
// whatever becomes of the others.
type mirroring struct {
	node     string
	on       bool
	members  *members
	register *register
	peers    *peers // to the copies of other nodes
	log      *slog.Logger
	news     chan struct{} // has room for one; filled when a run has started

	mu   sync.Mutex
	runs map[spool.RunID]*mirrored
}

// mirrored is how far the copy of a run is.
type mirrored struct {
	node    string    // that copies it
	want    spool.Seq // last event of the run, as it was known when it was last offered
	have    spool.Seq // last event that is known to be copied
	whole   time.Time // when the copy was last known to have all
	done    bool      // the copy is complete
	live    bool
	ended   time.Time
	stopped string
}

func newMirroring(o *Options, m *members, reg *register, p *peers) *mirroring {
	return &mirroring{node: o.Name, on: o.Mirrors > 0, members: m, register: reg, peers: p, log: o.Log, news: make(chan struct{}, 1), runs: make(map[spool.RunID]*mirrored)}
}

// choose returns the node that copies a run: of those that hold their leases and take runs
// the one with the highest hash of both names, so that all have about the same number, and
// few runs would get another one if a node comes or goes. It is empty if there is none.
func (m *mirroring) choose(id spool.RunID) (best string) {
	if !m.on {
		return ""
	}
	var most uint64
	nodes, _ := m.members.all()
	for i := range nodes {
		n := &nodes[i]
		if n.Name == m.node || n.State != nodeUp {
			continue
		}
		if w := weight(id, n.Name); best == "" || w > most {
			best, most = n.Name, w
		}
	}
	return best
}

// weight is the hash of a run and a node.
func weight(id spool.RunID, node string) uint64 {
	h := fnv.New128a()
	h.Write([]byte(id))
	h.Write([]byte{0})
	h.Write([]byte(node))
	sum := h.Sum(nil)
	return binary.BigEndian.Uint64(sum) ^ binary.BigEndian.Uint64(sum[8:])
}

// wake has new runs offered at once.
func (m *mirroring) wake() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// run makes offers until the context ends, to each node in its own time.
func (m *mirroring) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	busy := make(map[string]chan struct{}) // offers that are under way
	for ctx.Err() == nil {
		changed := m.members.changes()
		for node, runs := range m.due() {
			if done := busy[node]; done != nil {
				select {
				case <-done:
				default:
					continue // it is slow, and hears the rest with the next one
				}
			}
			done := make(chan struct{})
			busy[node] = done
			wg.Go(func() {
				defer close(done)
				m.offer(ctx, node, runs)
			})
		}
		pause(ctx, offerPause, nil)
		t := time.NewTimer(offerEvery)
		select {
		case <-t.C:
		case <-m.news:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// due returns what is offered to whom. It chooses a node for live runs that have none, or
// whose node is lost or has left.
func (m *mirroring) due() map[string][]offered {
	entries, loaded := m.register.mirrors(), m.members.isLoaded()
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.runs {
		if e, ok := entries[id]; !ok || !e.live {
			if r.live {
				r.live, r.ended = false, time.Now()
			}
			if r.done || time.Since(r.ended) > offerEnded {
				delete(m.runs, id)
			}
		}
	}
	offers := make(map[string][]offered)
	for id, e := range entries {
		n, known := m.members.get(e.node)
		if e.live && loaded && (!known || !n.holds()) {
			if other := m.choose(id); other != "" {
				if e.node != "" {
					m.log.Info("the node that copies a run is away: another one does", "run", id, "was", e.node, "is", other)
				}
				e.node = other
				m.register.setMirror(id, other)
			}
		}
		r := m.runs[id]
		if r == nil && !e.live || e.node == "" {
			continue
		}
		if r == nil || r.node != e.node {
			r = &mirrored{node: e.node, whole: time.Now(), live: e.live}
			m.runs[id] = r
		}
		r.want = max(r.want, e.last)
	}
	for id, r := range m.runs {
		if n, ok := m.members.get(r.node); ok && n.holds() {
			offers[r.node] = append(offers[r.node], offered{id, r.want})
		}
	}
	return offers
}

// offer tells a node which runs it copies, and takes its answer.
func (m *mirroring) offer(ctx context.Context, node string, runs []offered) {
	for some := range slices.Chunk(runs, offerRuns) {
		if err := m.offerSome(ctx, node, some); err != nil {
			if ctx.Err() == nil {
				m.log.Debug("a node that copies runs does not answer", "node", node, "err", err)
			}
			return
		}
	}
}

// offerSome makes an offer.
func (m *mirroring) offerSome(ctx context.Context, node string, runs []offered) error {
	began := time.Now()
	octx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	p, err := m.peers.get(octx, node)
	if err != nil {
		return err
	}
	t, err := offerTo(octx, p, &offer{Node: m.node, Runs: runs})
	if err != nil {
		if isCut(err) {
			m.peers.drop(node, p)
		}
		return err
	}
	asked := make(map[spool.RunID]spool.Seq, len(runs))
	for _, o := range runs {
		asked[o.ID] = o.Last
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range t.Runs {
		r := m.runs[a.ID]
		if r == nil || r.node != node {
			continue
		}
		r.have, r.done = a.Last, a.Complete
		if a.Last >= asked[a.ID] {
			r.whole = began
		}
		if a.Stopped != r.stopped && a.Stopped != "" {
			m.log.Warn("a run is not copied any further", "run", a.ID, "node", node, "reason", a.Stopped)
		}
		r.stopped = a.Stopped
	}
	return nil
}

// describe adds to the description of a run how far its copy is.
func (m *mirroring) describe(info *spool.Info) {
	if !m.on {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[info.ID]; r != nil {
		info.Mirror = &spool.Mirror{Node: r.node, Last: min(r.have, info.Last), LagMs: r.lag(info.Last, time.Now())}
	}
}

// describeAll is describe for a list.
func (m *mirroring) describeAll(infos iter.Seq2[spool.Info, error]) iter.Seq2[spool.Info, error] {
	if !m.on {
		return infos
	}
	return func(yield func(spool.Info, error) bool) {
		for info, err := range infos {
			if err == nil && info.ID != "" && info.State != spool.StateRemoved {
				m.describe(&info)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// lag returns for how many milliseconds the copy has not been known to have all events up
// to one.
func (r *mirrored) lag(last spool.Seq, now time.Time) int64 {
	if r.have >= last {
		return 0
	}
	return max(1, now.Sub(r.whole).Milliseconds())
}

// MirrorStatus says how the copies of the runs of this node are, and those that it has of
// others.
type MirrorStatus struct {
	Runs   int `json:"runs"`   // live runs of this node that another one copies
	Alone  int `json:"alone"`  // live runs that none does
	Behind int `json:"behind"` // runs whose copies are not known to have all events
	// LagMs and LagEvents are the greatest lag of a copy, in time and in events.
	LagMs     int64 `json:"lag_ms"`
	LagEvents int64 `json:"lag_events"`
	Stopped   int   `json:"stopped"` // copies that have no room
	// Copies are those of runs of other nodes.
	Copies     int   `json:"copies"`
	CopyBytes  int64 `json:"copy_bytes"`
	CopyLimit  int64 `json:"copy_limit_bytes"`
	Incomplete int   `json:"incomplete"` // copies whose runs go on, or whose nodes are away
}

// status fills in what is known of the runs of this node.
func (m *mirroring) status(s *MirrorStatus) {
	live := m.register.mirrors()
	maps.DeleteFunc(live, func(_ spool.RunID, e mirrorEntry) bool { return !e.live })
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for id, r := range m.runs {
		want := max(r.want, live[id].last)
		if lag := r.lag(want, now); lag > 0 {
			s.Behind++
			s.LagMs, s.LagEvents = max(s.LagMs, lag), max(s.LagEvents, int64(want-r.have))
		}
		if r.stopped != "" {
			s.Stopped++
		}
		if r.live {
			s.Runs++
		}
	}
	s.Alone = max(0, len(live)-s.Runs)
}
