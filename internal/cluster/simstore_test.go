package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// Times of the simulated store, which are those of the real one.
const (
	simAttempt = time.Second           // one attempt to reach it
	simPause   = 20 * time.Millisecond // before the next
	simTell    = 2 * time.Millisecond  // until watchers hear of a write
)

// simStore is the store of a simulated cluster: what Facts promises, with delays, with
// answers that are lost, and with times in which nobody answers.
type simStore struct {
	mu      sync.Mutex
	random  *rand.Rand
	seq     map[string]uint64          // of each part
	facts   map[string]map[string]Fact // by prefix and key
	watches map[string]map[*simWatch]bool
	down    chan struct{} // closed when it answers again; nil while it does
	outages uint64        // after which clients connect again

	news  []simNews
	more  chan struct{} // has room for one; filled when there are news
	wrote func(Fact)    // is called with every fact that is written

	writes, reads, listed, told, tells int64 // messages
}

// simWatch is a node that watches a prefix.
type simWatch struct {
	link *simLink
	saw  func(Fact)
}

// simNews is a write of which watchers hear later.
type simNews struct {
	prefix string
	fact   Fact
	at     time.Time
}

func newSimStore(random *rand.Rand) *simStore {
	return &simStore{random: random, seq: make(map[string]uint64), facts: make(map[string]map[string]Fact), watches: make(map[string]map[*simWatch]bool),
		more: make(chan struct{}, 1), wrote: func(Fact) {}}
}

// prefixOf returns the beginning of a key, up to its first dot.
func prefixOf(key string) string { return key[:strings.IndexByte(key, '.')+1] }

// write writes a fact if its revision is the expected one. Of a conflict it returns
// zero.
func (s *simStore) write(f Fact, expect uint64, keep time.Duration) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := prefixOf(f.Key)
	all := s.facts[prefix]
	if all == nil {
		all = make(map[string]Fact)
		s.facts[prefix] = all
	}
	if all[f.Key].Rev != expect {
		return 0
	}
	part := partOf(f.Key)
	s.seq[part]++
	f.Rev = s.seq[part]
	all[f.Key] = f
	if keep > 0 {
		time.AfterFunc(keep, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if all[f.Key].Rev == f.Rev {
				delete(all, f.Key)
			}
		})
	}
	s.wrote(f)
	if len(s.watches[prefix]) > 0 {
		s.news = append(s.news, simNews{prefix, f, time.Now().Add(simTell)})
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
	return f.Rev
}

// tell tells watchers of what was written, in this order, until the context ends.
func (s *simStore) tell(ctx context.Context) {
	for {
		s.mu.Lock()
		if len(s.news) == 0 {
			s.mu.Unlock()
			select {
			case <-s.more:
				continue
			case <-ctx.Done():
				return
			}
		}
		n := s.news[0]
		s.news = s.news[1:]
		var watches []*simWatch
		for w := range s.watches[n.prefix] {
			watches = append(watches, w)
		}
		s.tells++
		s.told += int64(len(watches))
		s.mu.Unlock()
		if wait := time.Until(n.at); wait > 0 {
			pause(ctx, wait, nil)
		}
		for _, w := range watches {
			w.link.deliver(w, n.fact)
		}
	}
}

// chance reports true so often.
func (s *simStore) chance(p float64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.Float64() < p
}

// latency is how long a message takes: most a fraction of a millisecond, some much
// longer.
func (s *simStore) latency() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := 200*time.Microsecond + time.Duration(s.random.ExpFloat64()*float64(300*time.Microsecond))
	if s.random.IntN(1000) == 0 {
		d += time.Duration(s.random.IntN(300)) * time.Millisecond
	}
	return d
}

// outage has the store not answer for some time. If clients lose their connections, they
// make new ones.
func (s *simStore) outage(ctx context.Context, d time.Duration, cut bool) {
	s.mu.Lock()
	if s.down != nil {
		s.mu.Unlock()
		return
	}
	down := make(chan struct{})
	s.down = down
	s.mu.Unlock()
	pause(ctx, d, nil)
	s.mu.Lock()
	s.down = nil
	if cut {
		s.outages++
	}
	s.mu.Unlock()
	close(down)
}

// away returns a channel that is closed when the store answers again; nil while it does.
func (s *simStore) away() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// simLink is the connection of a node to the store.
type simLink struct {
	store *simStore
	ctx   context.Context // of the process of the node
	net   *simNet         // of its machine

	mu   sync.Mutex
	held []func() // what is told once the machine goes on
}

var _ linked = (*simLink)(nil)

// deliver tells a watcher, unless it is cut off.
func (l *simLink) deliver(w *simWatch, f Fact) {
	cut, stopped := l.net.state()
	switch {
	case cut || l.ctx.Err() != nil:
	case stopped != nil:
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held = append(l.held, func() { w.saw(f) }); len(l.held) == 1 {
			go func() {
				select {
				case <-stopped:
				case <-l.ctx.Done():
				}
				l.mu.Lock()
				held := l.held
				l.held = nil
				l.mu.Unlock()
				for _, tell := range held {
					tell()
				}
			}()
		}
	default:
		w.saw(f)
	}
}

// attempt sends a request and waits for its answer. It reports whether there was one;
// the request may have arrived in any case.
func (l *simLink) attempt(ctx context.Context, do func()) bool {
	actx, cancel := context.WithTimeout(ctx, simAttempt)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	if !l.travel(actx) || l.store.away() != nil {
		if l.ctx.Err() == nil && l.store.chance(0.2) { // it arrived, and the answer is lost
			if cut, stopped := l.net.state(); !cut && stopped == nil {
				do()
			}
		}
		<-actx.Done()
		return false
	}
	do()
	return l.travel(actx) && !l.store.chance(0.0005)
}

// travel takes as long as a message between the node and the store. It reports false if
// that does not arrive.
func (l *simLink) travel(ctx context.Context) bool {
	l.net.await(ctx, l.ctx)
	pause(ctx, l.store.latency(), nil)
	cut, _ := l.net.state()
	return !cut && ctx.Err() == nil
}

// undecided is the error of a call whose context ended.
func (l *simLink) undecided(ctx context.Context) error {
	if l.ctx.Err() != nil {
		return fmt.Errorf("%w: the connection is closed", ErrUndecided)
	}
	return fmt.Errorf("%w: %w", ErrUndecided, context.Cause(ctx))
}

// each makes attempts until one has an answer.
func (l *simLink) each(ctx context.Context, do func()) error {
	for !l.attempt(ctx, do) {
		if ctx.Err() != nil || l.ctx.Err() != nil {
			return l.undecided(ctx)
		}
		pause(ctx, simPause, nil)
	}
	return nil
}

// Get implements [Facts].
func (l *simLink) Get(ctx context.Context, key string) (f Fact, err error) {
	err = l.each(ctx, func() {
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		l.store.reads++
		f = l.store.facts[prefixOf(key)][key]
	})
	if err == nil && f.Rev == 0 {
		err = ErrNoFact
	}
	return f, err
}

// Put implements [Facts]. As of the real store, an attempt that was made before is known
// again.
func (l *simLink) Put(ctx context.Context, f Fact, expect uint64, keep time.Duration) (uint64, error) {
	var mu sync.Mutex
	rev, conflict := uint64(0), false
	err := l.each(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		l.store.mu.Lock()
		l.store.writes++
		l.store.mu.Unlock()
		if rev == 0 {
			rev = l.store.write(f, expect, keep)
			conflict = rev == 0
		}
	})
	switch {
	case err != nil:
		return 0, err
	case conflict:
		return 0, ErrConflict
	}
	return rev, nil
}

// All implements [Facts].
func (l *simLink) All(ctx context.Context, prefix string) iter.Seq2[Fact, error] {
	return func(yield func(Fact, error) bool) {
		var all []Fact
		err := l.each(ctx, func() {
			l.store.mu.Lock()
			defer l.store.mu.Unlock()
			l.store.reads++
			all = all[:0]
			for _, f := range l.store.facts[prefix] {
				all = append(all, f)
			}
			l.store.listed += int64(len(all))
		})
		if err != nil {
			yield(Fact{}, err)
			return
		}
		for _, f := range all {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// Watch implements [Facts].
func (l *simLink) Watch(prefix string, saw func(Fact)) (stop func(), err error) {
	w := &simWatch{l, saw}
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.store.watches[prefix] == nil {
		l.store.watches[prefix] = make(map[*simWatch]bool)
	}
	l.store.watches[prefix][w] = true
	return func() {
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		delete(l.store.watches[prefix], w)
	}, nil
}

// Links implements [linked].
func (l *simLink) Links() uint64 {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return 1 + l.store.outages + l.net.cuts.Load()
}

// Last implements [linked].
func (l *simLink) Last(ctx context.Context, prefix string) (rev uint64, err error) {
	err = l.each(ctx, func() {
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		l.store.reads++
		rev = l.store.seq[partOf(prefix)]
	})
	return rev, err
}

// leaseOf decodes a fact about a node.
func leaseOf(f Fact) (rec nodeRecord, ok bool) {
	if !strings.HasPrefix(f.Key, nodePrefix) {
		return rec, false
	}
	return rec, json.Unmarshal(f.Data, &rec) == nil
}

// isLoss reports whether a fact says that a node is lost, without decoding all of them.
func isLoss(f Fact) bool {
	return strings.HasPrefix(f.Key, nodePrefix) && bytes.Contains(f.Data, []byte(`"state":"lost"`))
}
