package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
)

// lookAgain is how often a settler looks after runs that may be started again and whose
// node is not lost: perhaps nobody said that they ended.
const lookAgain = 5 * time.Minute

// settler starts runs again whose node is lost. Every control node has one: of two that
// want the same, one writes it.
type settler struct {
	queue   *queue
	wait    time.Duration // after the loss, for exclusive runs
	every   time.Duration
	losses  map[string]loss      // nodes that are lost, by name
	pending map[spool.RunID]bool // runs that waited when a node was lost, which may have claimed them
	looked  time.Time
}

// loss is when a settler learned that a node is lost.
type loss struct {
	epoch uint64
	at    time.Time
}

func newSettler(q *queue, t Timing) *settler {
	return &settler{queue: q, wait: t.TTL * restartNumerator / restartDenominator, every: t.Renew, losses: make(map[string]loss), pending: make(map[spool.RunID]bool)}
}

// run starts runs again until the context ends.
func (s *settler) run(ctx context.Context) {
	select {
	case <-s.queue.loaded:
	case <-ctx.Done():
	}
	s.looked = time.Now()
	for ctx.Err() == nil {
		if _, err := s.queue.facts.open(ctx); err != nil { // what the store says may be old
			return
		}
		changed := s.queue.members.changes()
		kept, waits := s.queue.restartable()
		if s.note() {
			for _, w := range waits {
				s.pending[w.id] = true
			}
		}
		look := time.Since(s.looked) > lookAgain
		if look {
			s.looked = time.Now()
		}
		for _, w := range kept {
			if _, lost := s.losses[w.owner]; lost || look {
				s.try(ctx, w)
			}
		}
		pending := s.pending
		s.pending = make(map[spool.RunID]bool)
		for _, w := range waits {
			if pending[w.id] && !s.try(ctx, w) {
				s.pending[w.id] = true
			}
		}
		pause(ctx, s.every, changed)
	}
}

// try settles a run. It reports false if it must be tried again.
func (s *settler) try(ctx context.Context, w *waiting) bool {
	settled, err := s.settle(ctx, w)
	if err != nil && ctx.Err() == nil {
		s.queue.log.Info("a run whose node is lost is not started again yet", "run", w.id, "err", err)
	}
	return settled && err == nil
}

// note notes which nodes are lost since when. It reports whether one was lost.
func (s *settler) note() (lost bool) {
	nodes, _ := s.queue.members.all()
	for i := range nodes {
		n := &nodes[i]
		if n.State != nodeLost {
			delete(s.losses, n.Name)
		} else if s.losses[n.Name].epoch != n.Epoch {
			s.losses[n.Name], lost = loss{n.Epoch, time.Now()}, true
		}
	}
	return lost
}

// settle has another attempt of a run wait in the queue, if its node is lost. It reports
// false if it is too early.
func (s *settler) settle(ctx context.Context, w *waiting) (settled bool, err error) {
	q := s.queue
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	rec, rev, err := q.facts.run(ctx, w.id)
	if err != nil && !errors.Is(err, ErrNoFact) {
		return false, err
	}
	lost, isLost := s.losses[rec.Node]
	switch {
	case rec.Next != "": // somebody wrote that, and perhaps no more
		return true, s.again(ctx, w, rec.Next)
	case !rec.isOpen() && w.owner != "":
		return true, q.ended(ctx, w.id)
	case !rec.isOpen() || !isLost || rec.Epoch > lost.epoch:
		return true, nil
	case isExclusive(w.info.Labels) && time.Since(lost.at) < s.wait:
		return false, nil
	}
	// What this node remembers may be old: the node may be back.
	if is, err := q.lease(ctx, rec.Node); err != nil || is.State != nodeLost || !is.isFenced(rec.Epoch) {
		return true, err
	}
	rec.Next, err = s.nextID(ctx, w)
	if err != nil {
		return false, err
	}
	rec.State, rec.Nonce = runSuperseded, newNonce()
	if _, err = q.facts.Put(ctx, Fact{Key: runPrefix + string(rec.ID), Data: encode(&rec)}, rev, q.keep); err != nil {
		return false, err // its node came back, or another settler was faster
	}
	return true, s.again(ctx, w, rec.Next)
}

// nextID returns the id of the run that takes the place of another one.
func (s *settler) nextID(ctx context.Context, w *waiting) (spool.RunID, error) {
	_, attempt := restarts(w.info.Labels)
	first := string(w.id)
	if attempt > 1 {
		first = strings.TrimSuffix(first, "a"+strconv.Itoa(attempt))
	}
	next := spool.RunID(first + "a" + strconv.Itoa(attempt+1))
	for _, prefix := range []string{runPrefix, queuePrefix} {
		_, err := s.queue.facts.Get(ctx, prefix+string(next))
		if err == nil {
			return spool.RunID(newNonce()), nil // somebody has that id
		}
		if !errors.Is(err, ErrNoFact) {
			return "", err
		}
	}
	return next, nil
}

// again puts the next attempt in the queue, and takes the last one out.
func (s *settler) again(ctx context.Context, w *waiting, next spool.RunID) error {
	q := s.queue
	rec, rev, err := q.get(ctx, w.id)
	if err != nil {
		return err
	}
	if rec.State == queueDone {
		q.saw(&rec, rev)
		return nil
	}
	spec, err := q.unseal(&rec)
	if err != nil {
		return err
	}
	_, attempt := restarts(spec.Labels)
	spec.ID, spec.Labels = next, maps.Clone(spec.Labels)
	spec.Labels[LabelOf], spec.Labels[LabelAttempt] = string(w.id), strconv.Itoa(attempt+1)
	again, err := q.record(&spec, rec.Node)
	if err != nil {
		return err
	}
	again.Nonce = newNonce()
	now, err := q.facts.Put(ctx, Fact{Key: queuePrefix + string(next), Data: encode(&again)}, 0, 0)
	switch {
	case err == nil:
		q.saw(&again, now)
		q.log.Warn("the node of a run is lost: it is started again", "run", w.id, "as", next, "attempt", attempt+1)
	case !errors.Is(err, ErrConflict):
		return err
	default: // another settler was faster
		if is, _, err := q.get(ctx, next); err == nil && is.State != queueDone && is.Info.Labels[LabelOf] != string(w.id) {
			q.log.Error("a run whose node is lost is not started again: somebody has taken the id", "run", w.id, "as", next)
		}
	}
	return q.leave(ctx, &queueRecord{Version: 1, ID: w.id, State: queueDone}, rev)
}

// lease reads the lease of a node.
func (q *queue) lease(ctx context.Context, node string) (rec nodeRecord, err error) {
	f, err := q.facts.Get(ctx, nodePrefix+node)
	if err == nil {
		err = json.Unmarshal(f.Data, &rec)
	}
	return rec, err
}

// restartable returns the runs that may be started again: those that were started, and
// those that wait.
func (q *queue) restartable() (kept, waits []*waiting) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range q.kept {
		kept = append(kept, w)
	}
	for _, w := range q.waiting {
		if mayRestart(w.info.Labels) {
			waits = append(waits, w)
		}
	}
	return kept, waits
}

// ended takes a run that may be started again out of the queue: it has ended.
func (q *queue) ended(ctx context.Context, id spool.RunID) error {
	rec, rev, err := q.get(ctx, id)
	if errors.Is(err, ErrNoFact) || err == nil && rec.State == queueDone {
		return nil
	}
	if err != nil {
		return err
	}
	return q.leave(ctx, &queueRecord{Version: 1, ID: id, State: queueDone}, rev)
}
