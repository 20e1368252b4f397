package host

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

const (
	// watchEvery is the time between two looks at what changed: a watcher gets
	// a run at most so often.
	watchEvery = 250 * time.Millisecond
	// maxEnded is how many runs that have ended the news remember.
	maxEnded = 4096
)

var _ spool.Watcher = (*Host)(nil)

// news says which runs of a host changed, and since when. It costs nothing until
// somebody asks: then the next event of each live run marks it, and no further event
// until somebody has asked again.
type news struct {
	mu      sync.Mutex
	on      bool   // somebody asked
	version uint64 // of the last change
	missing uint64 // changes up to this one are not known any more
	armed   uint64 // the next event of each run that changed up to this one marks it
	changed map[*run]uint64
	wake    chan struct{} // closed with the next change; nil if nobody waits
}

// Changes are the runs of a host that changed since some version of its news.
type Changes struct {
	Version uint64       `json:"version"`
	Runs    []spool.Info `json:"runs,omitempty"`
	// Missed is whether there were more changes than the host remembers.
	Missed bool `json:"missed,omitempty"`
}

// mark notes that a run changed. It does not block for long: it is called on the
// goroutine that appends to the log of the run.
func (n *news) mark(r *run) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.on {
		return
	}
	n.version++
	n.changed[r] = n.version
	r.marking = false
	if n.wake != nil {
		close(n.wake)
		n.wake = nil
	}
}

// News returns the version of the news now, from which [Host.NewsAfter] goes on.
func (h *Host) News() uint64 {
	h.mu.Lock()
	live := make([]*run, 0, len(h.runs))
	for _, r := range h.runs {
		if r.isStarted() && !r.isDone() {
			live = append(live, r)
		}
	}
	h.mu.Unlock()
	n := &h.news
	n.mu.Lock()
	first := !n.on
	if first {
		n.on, n.changed = true, make(map[*run]uint64)
	}
	version := n.version
	armed := n.armed == version
	n.mu.Unlock()
	if !first && !armed { // who asked before has left without a look at the last changes
		h.collect(version)
	}
	if first { // each is marked with its next event
		for _, r := range live {
			n.mark(r)
		}
		n.mu.Lock()
		version = n.version
		n.mu.Unlock()
		h.collect(0)
	}
	return version
}

// NewsAfter waits until there is a change after a version, and returns what changed
// since.
func (h *Host) NewsAfter(ctx context.Context, after uint64) (Changes, error) {
	h.News()
	n := &h.news
	for {
		n.mu.Lock()
		if n.version > after {
			n.mu.Unlock()
			return h.collect(after), nil
		}
		if n.wake == nil {
			n.wake = make(chan struct{})
		}
		wake := n.wake
		n.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return Changes{}, context.Cause(ctx)
		case <-h.ctx.Done():
			return Changes{}, spool.ErrClosed
		}
	}
}

// collect returns the runs that changed after a version, and has the next event of
// each mark it again.
func (h *Host) collect(after uint64) Changes {
	n := &h.news
	n.mu.Lock()
	result := Changes{Version: n.version, Missed: after < n.missing}
	type place struct {
		r    *run
		last spool.Seq
		mark bool
		told bool // it changed after the version
	}
	var places []place
	for r, version := range n.changed {
		if version <= after && version <= n.armed {
			continue
		}
		p := place{r: r, told: version > after}
		// The description that the caller gets is not older than this event,
		// so that every later one is told.
		if last, sealed := r.log.Last(); !sealed && !r.marking {
			p.last, p.mark = last, true
			r.marking = true
		}
		places = append(places, p)
	}
	n.armed = n.version
	if after < n.version {
		n.forget()
	}
	n.mu.Unlock()
	for _, p := range places {
		if p.mark {
			p.r.log.Watch(p.last, func() { n.mark(p.r) })
		}
		if p.told && !p.r.isRemoved() {
			result.Runs = append(result.Runs, p.r.Info())
		}
	}
	slices.SortFunc(result.Runs, func(a, b spool.Info) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return result
}

// forget drops the oldest changes of runs that have ended, if there are many. Callers
// hold n.mu.
func (n *news) forget() {
	if len(n.changed) <= maxEnded {
		return
	}
	var ended []*run
	for r := range n.changed {
		if _, sealed := r.log.Last(); sealed {
			ended = append(ended, r)
		}
	}
	if len(ended) <= maxEnded {
		return
	}
	slices.SortFunc(ended, func(a, b *run) int { return cmp.Compare(n.changed[a], n.changed[b]) })
	for _, r := range ended[:len(ended)-maxEnded/2] {
		n.missing = max(n.missing, n.changed[r])
		delete(n.changed, r)
	}
}

// Watch implements [spool.Watcher].
func (h *Host) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.CheckWatch(); err != nil {
			yield(spool.Info{}, err)
			return
		}
		w := NewSelection(f)
		removed, err := h.removals()
		if err != nil {
			yield(spool.Info{}, err)
			return
		}
		defer func() { _ = removed.Close() }() // it is only read
		for again := true; again; {
			version := h.News() // before the list, so that no change is between them
			for info, err := range h.List(ctx, f) {
				if err == nil {
					w.Select(&info)
				}
				if !yield(info, err) || err != nil && info.ID == "" { // not the error of one run: the list is not complete
					return
				}
			}
			if !yield(spool.Info{}, nil) {
				return
			}
			for again = false; !again; {
				c, err := h.newsWithin(ctx, version)
				if err != nil {
					yield(spool.Info{}, err)
					return
				}
				gone, err := removed.Next()
				if err != nil {
					yield(spool.Info{}, err)
					return
				}
				for _, id := range gone {
					if w.Remove(id) && !yield(spool.Info{ID: id, State: spool.StateRemoved}, nil) {
						return
					}
				}
				for i := range c.Runs {
					if w.Select(&c.Runs[i]) && !yield(c.Runs[i], nil) {
						return
					}
				}
				version, again = c.Version, c.Missed
				if !Pause(ctx) {
					yield(spool.Info{}, context.Cause(ctx))
					return
				}
			}
		}
	}
}

// removedEvery is the time between two looks for runs that were removed, which may have
// been done by another process.
const removedEvery = time.Second

// newsWithin is [Host.NewsAfter] for so long that runs which were removed are found soon.
func (h *Host) newsWithin(ctx context.Context, after uint64) (Changes, error) {
	within, cancel := context.WithTimeout(ctx, removedEvery)
	defer cancel()
	c, err := h.NewsAfter(within, after)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return Changes{Version: after}, nil
	}
	return c, err
}

// removals are the runs that are removed from now on.
type removals interface {
	Next() ([]spool.RunID, error)
	Close() error
}

func (h *Host) removals() (removals, error) {
	if h.store != nil {
		return h.store.Removals()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return &ownRemovals{h, h.forgottenBefore + len(h.forgotten)}, nil
}

// maxForgotten is how many removed runs a host without a state directory remembers: a
// watcher looks every second.
const maxForgotten = 10_000

// noteForgotten tells watchers that a run was removed. The host must be locked.
func (h *Host) noteForgotten(id spool.RunID) {
	if len(h.forgotten) == maxForgotten {
		h.forgotten = slices.Delete(h.forgotten, 0, maxForgotten/2)
		h.forgottenBefore += maxForgotten / 2
	}
	h.forgotten = append(h.forgotten, id)
}

// ownRemovals are those of a host without a state directory.
type ownRemovals struct {
	host *Host
	next int // of all that were removed
}

func (r *ownRemovals) Next() ([]spool.RunID, error) {
	r.host.mu.Lock()
	defer r.host.mu.Unlock()
	known := r.host.forgotten
	gone := slices.Clone(known[max(0, r.next-r.host.forgottenBefore):])
	r.next = r.host.forgottenBefore + len(known)
	return gone, nil
}

func (r *ownRemovals) Close() error { return nil }

// Pause waits until a watcher may look again. It reports false if the context ended.
func Pause(ctx context.Context) bool {
	timer := time.NewTimer(watchEvery)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Selection knows which runs a watcher has: it is told of the change after which its
// filter does not select a run any more.
type Selection struct {
	filter spool.Filter
	has    map[spool.RunID]struct{} // live runs
	seed   maphash.Seed
	told   map[uint64]struct{} // hashes of all runs: there may be many
}

// NewSelection returns a selection without runs.
func NewSelection(f spool.Filter) *Selection {
	return &Selection{f, make(map[spool.RunID]struct{}), maphash.MakeSeed(), make(map[uint64]struct{})}
}

// Remove reports whether the watcher is told that a run was removed: it has been told of
// the run.
func (s *Selection) Remove(id spool.RunID) bool {
	hash := maphash.String(s.seed, string(id))
	_, had := s.told[hash]
	delete(s.told, hash)
	delete(s.has, id)
	return had
}

// Select reports whether the watcher is told of a run that is as info says.
func (s *Selection) Select(info *spool.Info) bool {
	_, had := s.has[info.ID]
	matches := s.filter.Match(info)
	if matches && info.State != spool.StateClosed {
		s.has[info.ID] = struct{}{}
	} else {
		delete(s.has, info.ID)
	}
	if hash := maphash.String(s.seed, string(info.ID)); matches {
		s.told[hash] = struct{}{}
	} else {
		delete(s.told, hash)
	}
	return matches || had
}

// Has reports whether the watcher has a live run.
func (s *Selection) Has(id spool.RunID) bool {
	_, ok := s.has[id]
	return ok
}
