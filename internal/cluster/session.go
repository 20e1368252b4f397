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

// Timing is how leases are kept. Only elapsed time on one machine is ever measured.
type Timing struct {
	// TTL is how long a node may be silent before it is fenced.
	TTL time.Duration
	// Renew is how often a node says that it lives.
	Renew time.Duration

	began time.Time // when ticks are counted from; zero before Join
}

// DefaultLease is the time of a lease. It is longer than the store needs to find
// another leader, 9 seconds, and a renewal.
const DefaultLease = 15 * time.Second

// renewals is how often a lease is renewed in its time.
const renewals = 5

// NewTiming returns the timing for a lease.
func NewTiming(lease time.Duration) Timing { return Timing{TTL: lease, Renew: lease / renewals} }

// tick returns how long it is until the next tick. Loops of a node that wait for ticks wake
// up together, which costs an idle machine less than one after the other.
func (t Timing) tick() time.Duration {
	every := t.Renew / 5
	if t.began.IsZero() {
		return every
	}
	return every - time.Since(t.began)%every
}

// session is the lease of this node.
type session struct {
	facts    *store
	identity *identity
	timing   Timing
	log      *slog.Logger
	describe func(*nodeRecord)                   // fills in what the node says of itself
	begun    func(ctx context.Context, e uint64) // is called with every new epoch
	told     func()                              // is called when the lease was written
	renewed  func(rec nodeRecord, rev uint64)    // is called with what was written

	mu        sync.Mutex
	rec       nodeRecord
	rev       uint64
	confirmed time.Time // when the last renewal that was answered began
	want      nodeState // up, or draining
	changed   chan struct{}
	hurry     chan struct{} // filled when the record must be written at once
}

func newSession(facts *store, id *identity, t Timing, log *slog.Logger, describe func(*nodeRecord), begun func(context.Context, uint64)) *session {
	return &session{facts: facts, identity: id, timing: t, log: log, describe: describe, begun: begun, told: func() {}, renewed: func(nodeRecord, uint64) {}, want: nodeUp,
		changed: make(chan struct{}), hurry: make(chan struct{}, 1)}
}

// held returns the epoch of the session, and whether the lease can be relied on: its
// node was not silent for the time of a lease.
func (s *session) held() (epoch uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Epoch, s.holds() && time.Since(s.confirmed) < s.timing.TTL
}

// holds reports whether the lease was held when it was last written, and the store is
// still the same. The caller holds s.mu.
func (s *session) holds() bool { return s.rec.holds() && generationOf(s.rev) == s.facts.generation() }

// isUp reports whether the node holds its lease and takes new runs.
func (s *session) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want == nodeUp && s.rec.State == nodeUp && s.holds() && time.Since(s.confirmed) < s.timing.TTL
}

// changes returns a channel that is closed when the lease was written.
func (s *session) changes() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// left returns for how much longer a part of the lease can be relied on.
func (s *session) left(part time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.holds() {
		return 0
	}
	return part - time.Since(s.confirmed)
}

// await waits until the lease can be relied on.
func (s *session) await(ctx context.Context) (uint64, error) {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if epoch, ok := s.held(); ok {
			return epoch, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("this node holds no lease: %w", ErrUndecided)
		}
	}
}

// set takes over what was written.
func (s *session) set(rec nodeRecord, rev uint64, began time.Time) {
	s.mu.Lock()
	s.rec, s.rev, s.confirmed = rec, rev, began
	close(s.changed)
	s.changed = make(chan struct{})
	s.told()
	s.mu.Unlock()
	s.renewed(rec, rev)
}

// state says what the node wants to be, and writes it.
func (s *session) setState(want nodeState) {
	s.mu.Lock()
	s.want = want
	s.mu.Unlock()
	s.hasten()
}

// hasten writes the lease at once.
func (s *session) hasten() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// errTaken says that another machine has the name of this node.
var errTaken = errors.New("another machine of the cluster has the name of this node")

// acquire begins a new session of the node, in a new epoch.
func (s *session) acquire(ctx context.Context) error {
	first := true
	for {
		began := time.Now()
		var old nodeRecord
		f, err := s.facts.Get(ctx, nodePrefix+s.identity.Name)
		if err == nil {
			err = json.Unmarshal(f.Data, &old)
		}
		if err != nil && !errors.Is(err, ErrNoFact) {
			return err
		}
		if old.ID != "" && old.ID != s.identity.ID && old.holds() {
			return errTaken
		}
		if first || old.Epoch >= s.identity.Epoch { // a number is used once, and not wasted on attempts
			if err := s.identity.keep(max(old.Epoch, s.identity.Epoch) + 1); err != nil {
				return fmt.Errorf("remember the epoch: %w", err)
			}
			first = false
		}
		rec := nodeRecord{Version: 1, Name: s.identity.Name, ID: s.identity.ID, Epoch: s.identity.Epoch, Joined: s.facts.clock().UTC().Round(time.Millisecond)}
		rec.Lost = old.Lost
		if old.Epoch > 0 {
			// Whatever held the earlier lease holds it no more.
			rec.Lost = max(rec.Lost, old.Epoch)
		}
		s.fill(&rec)
		rev, err := s.facts.Put(ctx, Fact{Key: nodePrefix + rec.Name, Data: encode(&rec)}, f.Rev, 0)
		if errors.Is(err, ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		s.set(rec, rev, began)
		s.log.Info("the node holds its lease", "node", rec.Name, "epoch", rec.Epoch)
		return nil
	}
}

// fill completes a record that is about to be written.
func (s *session) fill(rec *nodeRecord) {
	s.describe(rec)
	s.mu.Lock()
	rec.State = s.want
	s.mu.Unlock()
	rec.Generation, rec.High = s.facts.marks.all()
	rec.Nonce = newNonce()
}

// keep holds the lease until the context ends. It begins a new epoch at first and
// whenever the node was fenced.
func (s *session) keep(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.acquire(ctx)
		if err == nil {
			epoch, _ := s.held()
			ectx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.begun(ectx, epoch)
			}()
			s.renew(ctx)
			cancel()
			<-done
			continue
		}
		if ctx.Err() == nil {
			s.log.Warn("the node has no lease", "err", err)
		}
		pause(ctx, s.timing.Renew, nil)
	}
}

// renew renews the lease until the node was fenced or the context ends.
func (s *session) renew(ctx context.Context) {
	tick := time.NewTicker(s.timing.Renew)
	defer tick.Stop()
	for {
		_, _, changed := s.facts.state()
		s.mu.Lock()
		over := generationOf(s.rev) != s.facts.generation()
		s.mu.Unlock()
		if over {
			return
		}
		select {
		case <-tick.C:
		case <-s.hurry:
		case <-changed:
			continue
		case <-ctx.Done():
			return
		}
		if !s.beat(ctx) {
			return
		}
	}
}

// beat writes the lease once. It reports false if the node was fenced.
func (s *session) beat(ctx context.Context) bool {
	s.mu.Lock()
	rec, rev := s.rec, s.rev
	s.mu.Unlock()
	rec.Beat++
	s.fill(&rec)
	began := time.Now()
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, s.timing.Renew)
	defer cancel()
	now, err := s.facts.Put(ctx, Fact{Key: nodePrefix + rec.Name, Data: encode(&rec)}, rev, 0)
	if err == nil {
		s.set(rec, now, began)
		return true
	}
	if !errors.Is(err, ErrConflict) {
		s.log.Debug("the lease was not renewed", "err", err)
		if errors.Is(err, ErrBehind) {
			s.doubt(parent, rev)
		}
		return true // perhaps it was: the next one tells
	}
	// An earlier renewal of ours whose answer was lost is no fence.
	var is nodeRecord
	f, err := s.facts.Get(ctx, nodePrefix+rec.Name)
	if errors.Is(err, ErrNoFact) {
		return false
	}
	if err == nil && json.Unmarshal(f.Data, &is) == nil && f.Rev > rev {
		if is.ID == rec.ID && is.Epoch == rec.Epoch && is.holds() {
			s.set(is, f.Rev, began)
			return true
		}
		s.mu.Lock()
		s.rec.State = nodeLost
		s.mu.Unlock()
		s.log.Warn("the node was fenced: it did not renew its lease", "epoch", rec.Epoch, "by", is.By, "reason", is.Reason)
		return false
	}
	return true
}

// doubt looks after a renewal that the store refused because it has an older lease than
// the one that it acknowledged. Then its leader has lost its followers, or it went back
// in time. The next renewal takes the place of that older lease: of the first it is
// refused, and by its revision the second is recognized.
func (s *session) doubt(ctx context.Context, rev uint64) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Renew)
	defer cancel()
	f, err := s.facts.Get(ctx, nodePrefix+s.identity.Name)
	if err != nil && !errors.Is(err, ErrNoFact) || f.Rev >= rev {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rev == rev {
		s.rev = max(f.Rev, rev&^revisionMask) // zero of this generation: there is none
	}
}

// leave gives the lease back. The node must have nothing live.
func (s *session) leave(ctx context.Context) error {
	for {
		s.mu.Lock()
		rec, rev, holds := s.rec, s.rev, s.holds()
		s.mu.Unlock()
		if !holds {
			return nil
		}
		rec.Beat++
		rec.State, rec.Nonce = nodeGone, newNonce()
		now, err := s.facts.Put(ctx, Fact{Key: nodePrefix + rec.Name, Data: encode(&rec)}, rev, 0)
		if err == nil {
			s.set(rec, now, time.Now())
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		f, err := s.facts.Get(ctx, nodePrefix+rec.Name)
		var is nodeRecord
		if err != nil || json.Unmarshal(f.Data, &is) != nil || is.ID != rec.ID || is.Epoch != rec.Epoch {
			return err
		}
		s.set(is, f.Rev, time.Now())
	}
}

// pause waits for some time, for news, or for the end of the context. The channel of
// news may be nil.
func pause(ctx context.Context, d time.Duration, news <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-news:
	case <-ctx.Done():
	}
}
