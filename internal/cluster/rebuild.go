package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
)

// assertAtOnce is how many facts a node writes at once when it says again what it has.
const assertAtOnce = 64

// assertLocal tells a store that may have forgotten it of every run of this node: those
// that it has, and those that it claimed and has no more. It returns when the store
// knows all of them.
func (r *register) assertLocal(ctx context.Context) error {
	claimed, err := r.claims.all()
	if err != nil {
		return fmt.Errorf("read the claims of this node: %w", err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, assertAtOnce)
	do := func(write func() error) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := write(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			}
		})
	}
	oldest := r.facts.clock().Add(-r.keep) // if the clock is wrong, the claims have the others
	for info, err := range r.backend.List(ctx, spool.Filter{Since: oldest}) {
		if err != nil {
			errs = append(errs, err)
			break
		}
		delete(claimed, info.ID)
		do(func() error { return r.assertRun(ctx, info) })
	}
	for id, age := range claimed {
		do(func() error { return r.assertClaim(ctx, id, age) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.outbox.again(ctx)
}

// assertRun tells the store of a run that this node has.
func (r *register) assertRun(ctx context.Context, info spool.Info) error {
	rec := runRecord{ID: info.ID, State: stateOf(&info), Info: recordInfo(&info)}
	if rec.State != runClosed && info.Name != "" {
		if err := r.name(ctx, info.ID, info.Name, info.Labels); err != nil && !errors.Is(err, spool.ErrExists) {
			return err
		}
	}
	rec, rev, err := r.assertRecord(ctx, rec, r.keep) // from now on: the clock may be wrong, and too long harms nobody
	if err == nil && rec.State != runClosed {
		r.add(claimed{rec, rev}, info)
	}
	return err
}

// assertClaim tells the store of a run that this node has claimed and that is not there:
// it is about to start, or was removed.
func (r *register) assertClaim(ctx context.Context, id spool.RunID, age time.Duration) error {
	at := r.facts.clock().Add(-age)
	rec := runRecord{ID: id, State: runClaimed, Info: spool.Info{ID: id, Created: at, State: spool.StateRunning}}
	if !r.starting(id) {
		info, err := r.backend.Stat(ctx, id)
		if err == nil { // it has just started
			return r.assertRun(ctx, info)
		}
		if !errors.Is(err, spool.ErrNotFound) {
			return err
		}
		is, _, err := r.facts.run(ctx, id)
		if err == nil && is.Node == r.node && (is.wasStarted() || is.Generation == r.facts.generation()) {
			return nil // the store has not forgotten what became of it, or assertAll has said it
		}
		if err != nil && !errors.Is(err, ErrNoFact) {
			return err
		}
		rec.State, rec.Info.State, rec.Info.Ended = runClosed, spool.StateClosed, at
		rec.Info.Outcome = &spool.Outcome{Kind: spool.Unknown, Reason: fmt.Sprintf("node %s started it and does not have it any more", r.node)}
	}
	_, _, err := r.assertRecord(ctx, rec, max(r.keep-age, time.Minute))
	return err
}

// assertRecord writes the fact about a run of this node.
func (r *register) assertRecord(ctx context.Context, rec runRecord, keep time.Duration) (runRecord, uint64, error) {
	r.mu.Lock()
	rec.Version, rec.Node, rec.Epoch, rec.Nonce = 1, r.node, r.epoch, newNonce()
	r.mu.Unlock()
	rev, rec, err := r.write(ctx, rec, 0, keep)
	if errors.Is(err, errElsewhere) {
		r.log.Error("two nodes have one run: the store went back in time, and another node started it again", "run", rec.ID, "err", err)
		rec.State, err = runClosed, nil
	}
	return rec, rev, err
}

// back says that this node has told the store of a generation what it has. When all
// nodes have, the store takes claims again.
func (s *store) back(ctx context.Context, generation uint64) error {
	err := s.change(ctx, generation, func(rec *metaRecord) bool {
		_, nodes := s.identity.known()
		before := len(rec.Waits)
		if rec.Rebuilding {
			rec.Waits = merge(rec.Waits, nodes)
		}
		if slices.Contains(rec.Back, s.self) && before == len(rec.Waits) {
			return false
		}
		rec.Back = merge(rec.Back, []string{s.self})
		return rec.Rebuilding
	})
	if err != nil {
		return err
	}
	return s.identity.keepGeneration(generation)
}

// merge returns the texts of two lists, sorted, each once.
func merge(a, b []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(a, b))))
}

// change changes the fact about the store, unless that is of another generation or edit
// returns false.
func (s *store) change(ctx context.Context, generation uint64, edit func(*metaRecord) bool) error {
	for {
		rec, rev, err := s.read(ctx)
		if err != nil {
			return err
		}
		if rec.Generation != generation {
			if err := s.load(ctx); err != nil {
				return err
			}
			return errWentBack
		}
		if !edit(&rec) {
			s.take(rec, rev)
			return nil
		}
		if done := len(rec.missing()) == 0; rec.Rebuilding && done {
			rec.Rebuilding = false
			s.log.Warn("the store of the cluster is complete again", "generation", rec.Generation, "without", rec.Without)
		}
		if err := s.write(ctx, rec, rev); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// Rebuild has all nodes say again what they have, as if this node had noticed that the
// store went back in time. While that is under way it goes on without the nodes that
// are named: what they had claimed may be started again.
func (n *Node) Rebuild(ctx context.Context, without []string) error {
	s := n.store
	generation, err := s.ready(ctx)
	if err != nil {
		return err
	}
	meta, _, _ := s.state()
	if !meta.Rebuilding && len(without) == 0 {
		return s.wentBackTo(ctx, generation, "an operator said so")
	}
	for _, name := range without {
		if !slices.Contains(meta.Waits, name) {
			return fmt.Errorf("%w: the cluster does not wait for node %q: it waits for %v", spool.ErrInvalid, name, meta.missing())
		}
	}
	return s.change(ctx, generation, func(rec *metaRecord) bool {
		rec.Without = merge(rec.Without, without)
		return rec.Rebuilding
	})
}

// wentBackTo begins a new generation after one.
func (s *store) wentBackTo(ctx context.Context, generation uint64, reason string) error {
	if err := s.wentBack(ctx, generation, reason); !errors.Is(err, errWentBack) || s.generation() == generation {
		return err
	}
	return nil
}
