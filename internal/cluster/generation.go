package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// metaKey is the key of the fact about the store itself.
const metaKey = "meta.cluster"

// metaRecord is the fact about the store: its generation. A store that went back in
// time, or lost everything, begins a new one, in which all nodes say again what they
// have.
type metaRecord struct {
	Version    int       `json:"v"`
	Generation uint64    `json:"generation"`
	Rebuilding bool      `json:"rebuilding,omitempty"` // nothing is claimed
	Reason     string    `json:"reason,omitempty"`
	By         string    `json:"by,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	Waits      []string  `json:"waits,omitempty"`   // the nodes that must say again what they have
	Back       []string  `json:"back,omitempty"`    // those that did
	Without    []string  `json:"without,omitempty"` // those that an operator gave up
	Nonce      string    `json:"nonce"`
}

// missing returns the nodes that have not said again what they have.
func (m *metaRecord) missing() []string {
	return slices.DeleteFunc(slices.Clone(m.Waits), func(n string) bool { return slices.Contains(m.Back, n) || slices.Contains(m.Without, n) })
}

// RebuildError says that nothing is claimed, for the store went back in time and not
// all nodes have said again what they have.
type RebuildError struct {
	Reason  string
	Missing []string // nodes
}

func (e *RebuildError) Error() string {
	text := "the store of the cluster went back in time (" + e.Reason + "), and nothing is started until "
	if len(e.Missing) == 0 {
		return text + "its nodes have said again what they have"
	}
	return text + "these nodes have said again what they have: " + strings.Join(e.Missing, ", ")
}

// Is makes it an [ErrUndecided]: a start may be tried again.
func (e *RebuildError) Is(target error) bool { return target == ErrUndecided }

// hint says what a person can do.
func (e *RebuildError) hint() string {
	if len(e.Missing) == 0 {
		return `wait; "spool cluster status" says how far it is`
	}
	return fmt.Sprintf(`start them; if one is gone for ever, "spool cluster rebuild --without %s" goes on without it, and what it had claimed may be started again`, e.Missing[0])
}

// errWentBack says that the store has acknowledged a write with a revision that it had
// given before.
var errWentBack = fmt.Errorf("the store of the cluster went back in time: %w", ErrUndecided)

// The revisions that the rest of the package sees have the generation in their upper
// bits: they grow for ever, and none of an earlier generation is expected in a later
// one.
const (
	generationShift = 48
	revisionMask    = 1<<generationShift - 1
)

func generationOf(rev uint64) uint64 { return rev >> generationShift }

// store is the store of the cluster, as far as this node relies on it: it recognizes
// when the store went back in time.
type store struct {
	facts    Facts
	self     string
	identity *identity
	marks    *marks
	log      *slog.Logger
	timing   Timing
	clock    func() time.Time // see Options
	known    func() []string  // the nodes of the cluster that have not left it
	heard    func(Fact)       // is called with other facts about the whole cluster

	mu      sync.Mutex
	meta    metaRecord
	rev     uint64 // of meta; zero before it was read
	link    uint64 // the connection on which it was read
	changed chan struct{}
}

var _ Facts = (*store)(nil)

func newStore(o *Options, id *identity, m *marks) *store {
	return &store{facts: o.Facts, self: o.Name, identity: id, marks: m, log: o.Log, timing: o.Timing, clock: o.clock, changed: make(chan struct{})}
}

// linked is a store that is reached over a connection.
type linked interface {
	// Links counts connections: it grows with every one that takes the place of
	// another.
	Links() uint64
	// Last returns the highest revision of the part of the store that has the
	// facts of a prefix. It may be an old one, as what Get reads: no decision is
	// made on it.
	Last(ctx context.Context, prefix string) (rev uint64, err error)
}

// links returns the number of the present connection.
func (s *store) links() uint64 {
	if l, ok := s.facts.(linked); ok {
		return l.Links()
	}
	return 0
}

// state returns what is known about the store, and a channel that is closed when that
// changes.
func (s *store) state() (meta metaRecord, read bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta, s.rev > 0, s.changed
}

// generation returns the generation, zero before it is known.
func (s *store) generation() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.meta.Generation
}

// ready waits until the generation is known.
func (s *store) ready(ctx context.Context) (uint64, error) {
	for {
		meta, read, changed := s.state()
		if read {
			return meta.Generation, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w", ErrUndecided, context.Cause(ctx))
		}
	}
}

// open waits until the store takes claims, and returns its generation. The error is a
// [*RebuildError] if that is because nodes are missing.
func (s *store) open(ctx context.Context) (uint64, error) {
	for {
		meta, read, changed := s.state()
		if read && !meta.Rebuilding {
			return meta.Generation, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if !read {
				return 0, fmt.Errorf("%w: %w", ErrUndecided, context.Cause(ctx))
			}
			return 0, meta.rebuild()
		}
	}
}

func (m *metaRecord) rebuild() error { return &RebuildError{m.Reason, m.missing()} }

// sure returns an error if a claim that was acknowledged in a generation does not
// count: there is another one.
func (s *store) sure(ctx context.Context, generation uint64) error {
	s.mu.Lock()
	link := s.link
	s.mu.Unlock()
	if link != s.links() { // behind another connection may be another store
		if err := s.load(ctx); err != nil {
			return err
		}
	}
	meta, _, _ := s.state()
	if meta.Rebuilding {
		return meta.rebuild()
	}
	if meta.Generation != generation {
		return errWentBack
	}
	return nil
}

// keep reads the generation until the context ends: at first, with every new
// connection and now and then.
func (s *store) keep(ctx context.Context) {
	stop, err := s.facts.Watch(metaKey[:strings.Index(metaKey, ".")+1], func(f Fact) {
		var rec metaRecord
		if f.Key != metaKey {
			s.heard(f)
		} else if json.Unmarshal(f.Data, &rec) == nil {
			s.take(rec, f.Rev)
		}
	})
	if err == nil {
		defer stop()
	}
	read := time.Time{}
	for ctx.Err() == nil {
		s.mu.Lock()
		fresh := s.rev > 0 && s.link == s.links() && time.Since(read) < s.timing.TTL
		s.mu.Unlock()
		if !fresh {
			lctx, cancel := context.WithTimeout(ctx, s.timing.TTL)
			if err := s.load(lctx); err == nil {
				read = time.Now()
			} else if ctx.Err() == nil {
				s.log.Debug("the generation of the store is not known", "err", err)
			}
			cancel()
		}
		pause(ctx, s.timing.tick(), nil)
	}
}

// load reads the generation. If the store is behind what this node knows, a new one
// begins.
func (s *store) load(ctx context.Context) error {
	for {
		link := s.links()
		rec, rev, err := s.read(ctx)
		if err != nil {
			return err
		}
		mine, nodes := s.mine()
		switch {
		case rev == 0 && mine == 0: // a new cluster
			err = s.write(ctx, metaRecord{Generation: 1}, 0)
		case rev == 0:
			err = s.begin(ctx, "it has forgotten everything", rec, rev, mine, nodes)
		case rec.Generation < mine:
			err = s.begin(ctx, fmt.Sprintf("it is of generation %d, and was of %d before", rec.Generation, mine), rec, rev, mine, nodes)
		default:
			behind, lastErr := s.behind(ctx, rec.Generation, link)
			if lastErr != nil {
				return lastErr
			}
			if behind != "" {
				err = s.begin(ctx, behind, rec, rev, mine, nodes)
				break
			}
			s.take(rec, rev)
			s.mu.Lock()
			s.link = link
			s.mu.Unlock()
			return nil
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// probes are the keys of facts that say nothing, without the name of the node that writes
// them. No name and no id has such a key. Leases need none: they are written all the time.
var probes = map[string]string{"run": namePrefix + "_", "queue": queuePrefix + "_"}

// keepProbe is how long the store keeps such a fact.
const keepProbe = time.Minute

// behind compares the ends of the parts of the store with the marks of this node, once
// for every connection, and says which part went back. What is read may be old: a server
// that led the store and was stopped or cut off says for seconds what it had then, and one
// that has just begun to lead may say less than it has. So a write decides.
func (s *store) behind(ctx context.Context, generation, link uint64) (what string, err error) {
	s.mu.Lock()
	compared := s.rev > 0 && s.link == link
	s.mu.Unlock()
	known, high := s.marks.all()
	store, ok := s.facts.(linked)
	if compared || known != generation || !ok {
		return "", nil
	}
	for part, key := range probes {
		last, err := store.Last(ctx, part+".")
		if err == nil && last < high[part] {
			last, err = s.probe(ctx, key+s.self)
		}
		if err != nil {
			return "", err
		}
		if last < high[part] {
			return wentBackTo(part, last, high[part]), nil
		}
	}
	return "", nil
}

// probe writes a fact that says nothing, and returns its revision: the end of a part of
// the store.
func (s *store) probe(ctx context.Context, key string) (uint64, error) {
	for expect := uint64(0); ; {
		rev, err := s.facts.Put(ctx, Fact{Key: key, Data: []byte("probe " + newNonce())}, expect, keepProbe)
		if !errors.Is(err, ErrConflict) {
			return rev, err
		}
		f, err := s.facts.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNoFact) {
			return 0, err
		}
		expect = f.Rev
	}
}

// wentBackTo says that a part of the store ends before a mark.
func wentBackTo(part string, rev, mark uint64) string {
	return fmt.Sprintf("the facts about %ss end at %d, and %d was acknowledged before", part, rev, mark)
}

// mine returns the newest generation that this node knows, and the nodes that it had.
func (s *store) mine() (uint64, []string) {
	generation, nodes := s.identity.known()
	if s.identity.asserted() > 0 {
		nodes = append(nodes, s.self)
	}
	return max(generation, s.generation()), slices.Concat(nodes, s.known())
}

// read reads the fact about the store. The revision is zero if there is none.
func (s *store) read(ctx context.Context) (rec metaRecord, rev uint64, err error) {
	f, err := s.facts.Get(ctx, metaKey)
	if errors.Is(err, ErrNoFact) {
		return rec, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(f.Data, &rec)
	}
	return rec, f.Rev, err
}

// write writes the fact about the store.
func (s *store) write(ctx context.Context, rec metaRecord, expect uint64) error {
	rec.Version, rec.Nonce = 1, newNonce()
	rev, err := s.facts.Put(ctx, Fact{Key: metaKey, Data: encode(&rec)}, expect, 0)
	if err == nil {
		s.take(rec, rev)
	}
	return err
}

// begin begins a new generation, in which nothing is claimed until all nodes have said
// again what they have.
func (s *store) begin(ctx context.Context, reason string, old metaRecord, expect, mine uint64, nodes []string) error {
	rec := metaRecord{Generation: max(mine, old.Generation) + 1, Rebuilding: true, Reason: reason, By: s.self, Since: s.clock().UTC().Round(time.Millisecond)}
	rec.Waits = merge(nodes, old.Waits)
	err := s.write(ctx, rec, expect)
	if err == nil {
		s.log.Error("the store of the cluster went back in time: nothing is started until all nodes have said again what they have", "reason", reason, "generation", rec.Generation, "nodes", rec.Waits)
	}
	return err
}

// take takes over what the store says of itself.
func (s *store) take(rec metaRecord, rev uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if rec.Generation < s.meta.Generation || rec.Generation == s.meta.Generation && rev <= s.rev {
		return
	}
	if err := s.marks.begin(rec.Generation); err != nil {
		s.log.Error("the high-water marks of the store cannot be kept", "err", err)
	}
	s.meta, s.rev = rec, rev
	close(s.changed)
	s.changed = make(chan struct{})
}

// wentBack begins a new generation after the store gave a revision twice, unless
// somebody else did.
func (s *store) wentBack(ctx context.Context, generation uint64, what string) error {
	for {
		rec, rev, err := s.read(ctx)
		if err != nil {
			return errors.Join(errWentBack, err)
		}
		if rec.Generation > generation {
			s.take(rec, rev)
			return errWentBack
		}
		mine, nodes := s.mine()
		if err := s.begin(ctx, what, rec, rev, mine, nodes); err == nil || !errors.Is(err, ErrConflict) {
			return errors.Join(errWentBack, err)
		}
	}
}

// Get implements [Facts].
func (s *store) Get(ctx context.Context, key string) (Fact, error) {
	generation, err := s.ready(ctx)
	if err != nil {
		return Fact{}, err
	}
	f, err := s.facts.Get(ctx, key)
	return s.saw(generation, f), err
}

// run reads the fact about a run, and its revision.
func (s *store) run(ctx context.Context, id spool.RunID) (rec runRecord, rev uint64, err error) {
	f, err := s.Get(ctx, runPrefix+string(id))
	if err == nil {
		err = json.Unmarshal(f.Data, &rec)
	}
	return rec, f.Rev, err
}

// saw gives a fact that was read the revision of its generation.
func (s *store) saw(generation uint64, f Fact) Fact {
	s.marks.saw(generation, partOf(f.Key), f.Rev)
	if f.Rev > 0 {
		f.Rev |= generation << generationShift
	}
	return f
}

// Put implements [Facts]. What a store acknowledges that went back in time is an error.
func (s *store) Put(ctx context.Context, f Fact, expect uint64, keep time.Duration) (uint64, error) {
	generation, err := s.ready(ctx)
	if err != nil {
		return 0, err
	}
	if expect > 0 && generationOf(expect) != generation {
		return 0, ErrConflict
	}
	part := partOf(f.Key)
	before := s.marks.get(part) // other writers may be acknowledged while we wait
	rev, err := s.facts.Put(ctx, f, expect&revisionMask, keep)
	if err != nil {
		return 0, err
	}
	if part != "" && rev <= before {
		return 0, s.wentBack(ctx, generation, wentBackTo(part, rev, before))
	}
	if err := s.marks.raise(generation, part, rev); err != nil {
		s.log.Error("the store of the cluster may go back in time unseen", "err", err)
	}
	return rev | generation<<generationShift, nil
}

// All implements [Facts].
func (s *store) All(ctx context.Context, prefix string) iter.Seq2[Fact, error] {
	return func(yield func(Fact, error) bool) {
		generation, err := s.ready(ctx)
		if err != nil {
			yield(Fact{}, err)
			return
		}
		for f, err := range s.facts.All(ctx, prefix) {
			if !yield(s.saw(generation, f), err) {
				return
			}
		}
	}
}

// Watch implements [Facts].
func (s *store) Watch(prefix string, saw func(Fact)) (stop func(), err error) {
	return s.facts.Watch(prefix, func(f Fact) { // what was on its way may be of an earlier store: it raises no mark
		f.Rev |= s.generation() << generationShift
		saw(f)
	})
}
