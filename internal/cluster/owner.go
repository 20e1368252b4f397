package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/record"
)

// Limits of a start.
const (
	// DefaultClaim is how long a start waits for the store to decide whose it is.
	DefaultClaim = 15 * time.Second
	// settleTimeout bounds the writes after a start that failed.
	settleTimeout = 5 * time.Second
	// abandonTimeout is how long a claim without an answer is looked after.
	abandonTimeout = time.Minute
)

// Owner is the runs of this node, for the other nodes and for itself. A start is
// claimed in the store before it happens: at most one node starts an id.
type Owner struct {
	Backend
	node     string
	facts    *store
	claims   *claims
	archive  Archive // nil without one
	session  *session
	register *register
	stat     func(context.Context, spool.RunID) (spool.Info, error) // of a run of any node
	log      *slog.Logger
	tasks    *tasks
	patience time.Duration // with the store
	mirrors  *mirroring

	mu       sync.Mutex
	starting map[spool.RunID]chan struct{} // closed when a start of the id is over
	holds    int                           // starts of exclusive runs that are under way
}

// errElsewhere says that another node has claimed the id.
var errElsewhere = fmt.Errorf("another node has this run: %w", spool.ErrExists)

// Start implements [spool.Backend]: it claims the id for this node, then starts the run.
func (o *Owner) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if spec.ID == "" {
		spec.ID = spool.RunID(newNonce())
	}
	if spec.ID.Check() != nil { // the error of this backend is that of all
		return o.Backend.Start(ctx, spec)
	}
	done, err := o.enter(ctx, spec.ID)
	if err != nil {
		return spool.Info{}, err
	}
	defer done()
	claimed, err := o.claim(ctx, &spec)
	if err != nil {
		return spool.Info{}, err
	}
	if claimed.rev == 0 { // it is ours: saying it again is harmless
		return o.Backend.Start(ctx, spec)
	}
	if err := failpoint.Inject("cluster.claimed"); err != nil {
		return spool.Info{}, err
	}
	if spec.Name != "" {
		if err := o.claimName(ctx, spec.ID, spec.Name, spec.Labels); err != nil {
			o.fail(claimed)
			if errors.Is(err, spool.ErrExists) {
				err = &spool.StartError{Reason: "name_taken", Err: err, Hint: `choose another name, stop that run with "spool kill", or replace it with --replace`}
			}
			return spool.Info{}, err
		}
	}
	if isExclusive(spec.Labels) {
		defer o.exclusive()()
		if err := o.hold(ctx); err != nil {
			o.fail(claimed)
			return spool.Info{}, err
		}
	}
	info, err := o.Backend.Start(ctx, spec)
	if err != nil {
		// Perhaps it started, and nobody heard the answer.
		sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
		found, statErr := o.Stat(sctx, spec.ID)
		cancel()
		if statErr != nil {
			o.fail(claimed)
			return info, err
		}
		o.register.add(claimed, found)
		return info, err
	}
	o.register.add(claimed, info)
	o.mirrors.wake()
	return info, nil
}

// Stat implements [spool.Backend].
func (o *Owner) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	info, err := o.Backend.Stat(ctx, id)
	if err == nil {
		o.mirrors.describe(&info)
	}
	return info, err
}

// Read implements [spool.Backend].
func (o *Owner) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	page, err := o.Backend.Read(ctx, id, q)
	if err == nil {
		o.mirrors.describe(&page.Info)
	}
	return page, err
}

// List implements [spool.Backend].
func (o *Owner) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return o.mirrors.describeAll(o.Backend.List(ctx, f))
}

// Watch implements [spool.Watcher].
func (o *Owner) Watch(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return o.mirrors.describeAll(o.Backend.Watch(ctx, f))
}

// enter waits until no other start of an id is under way on this node, so that one that
// fails does not take back the claim of one that does not.
func (o *Owner) enter(ctx context.Context, id spool.RunID) (done func(), err error) {
	for {
		o.mu.Lock()
		other := o.starting[id]
		if other == nil {
			mine := make(chan struct{})
			o.starting[id] = mine
			o.mu.Unlock()
			return func() {
				o.mu.Lock()
				delete(o.starting, id)
				o.mu.Unlock()
				close(mine)
			}, nil
		}
		o.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claimed is a record of a run that this node has written.
type claimed struct {
	rec runRecord
	rev uint64
}

// claim makes this node the owner of an id. The revision is zero if it was before.
func (o *Owner) claim(ctx context.Context, spec *spool.Spec) (claimed, error) {
	cctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	info := spool.Info{ID: spec.ID, Name: spec.Name, Engine: spec.Engine, Labels: spec.Labels, Argv: spec.Argv, Cwd: spec.Cwd, Created: o.facts.clock().Round(0), State: spool.StateRunning}
	if info.Engine == "" {
		info.Engine = spool.EngineProcess
	}
	rec := runRecord{Version: 1, ID: spec.ID, Node: o.node, State: runClaimed, Mirror: o.mirrors.choose(spec.ID), Info: recordInfo(&info)}
	expect := uint64(0)
	for {
		generation, err := o.facts.open(cctx)
		if err == nil {
			rec.Generation = generation
			rec.Epoch, err = o.session.await(cctx)
		}
		if err == nil {
			err = o.isArchived(cctx, spec.ID)
		}
		if err != nil {
			return claimed{}, o.noQuorum(ctx, spec.ID, err)
		}
		rec.Nonce = newNonce()
		f := Fact{Key: runPrefix + string(spec.ID), Data: encode(&rec)}
		rev, err := o.facts.Put(cctx, f, expect, 0)
		if err == nil {
			return o.confirm(ctx, cctx, claimed{rec, rev}, generation)
		}
		if !errors.Is(err, ErrConflict) {
			if errors.Is(err, ErrUndecided) {
				o.abandon(f, expect, rec)
			}
			return claimed{}, o.noQuorum(ctx, spec.ID, err)
		}
		var is runRecord
		now, err := o.facts.Get(cctx, f.Key)
		if err == nil {
			err = json.Unmarshal(now.Data, &is)
		}
		switch {
		case errors.Is(err, ErrNoFact):
			expect = 0 // it has just left the store
		case err != nil:
			return claimed{}, o.noQuorum(ctx, spec.ID, err)
		case is.State == runFailed: // nobody has started it
			expect = now.Rev
		case is.Node != o.node:
			return claimed{}, fmt.Errorf("start run %s: node %s: %w", spec.ID, is.Node, errElsewhere)
		default:
			_, err := o.Stat(cctx, is.ID)
			switch {
			case err == nil:
				return claimed{rec: is}, nil
			case !errors.Is(err, spool.ErrNotFound):
				return claimed{}, err
			case is.isWithoutLog():
				return claimed{}, fmt.Errorf("start run %s: %s: %w", is.ID, is.Info.Outcome.Reason, spool.ErrExists)
			case is.State != runClaimed: // its log is gone: another start would execute it twice
				return claimed{}, fmt.Errorf("start run %s: it ended and was removed: %w", is.ID, spool.ErrExists)
			}
			// The claim is of a start that was given up. It is made again, for
			// somebody may be about to take it back.
			expect = now.Rev
		}
	}
}

// confirm notes a claim on the disk of this node, so that the store can be told again,
// and checks that the store is still the one that has it.
func (o *Owner) confirm(ctx, cctx context.Context, c claimed, generation uint64) (claimed, error) {
	err := o.claims.add(c.rec.ID)
	if err == nil {
		err = o.facts.sure(cctx, generation)
	}
	if err != nil {
		o.fail(c)
		return claimed{}, o.noQuorum(ctx, c.rec.ID, err)
	}
	return c, nil
}

// isArchived returns an error for a run that is in the archive, if the store went back
// in time and a node was given up then: nobody else knows that its runs were started.
func (o *Owner) isArchived(ctx context.Context, id spool.RunID) error {
	meta, _, _ := o.facts.state()
	if o.archive == nil || len(meta.Without) == 0 {
		return nil
	}
	if _, err := o.Stat(ctx, id); err == nil {
		return nil // the claim says whose it is
	}
	_, err := o.archive.Stat(ctx, id)
	switch {
	case errors.Is(err, spool.ErrNotFound):
		return nil
	case err == nil:
		err = fmt.Errorf("it ended and is in the archive: %w", spool.ErrExists)
	}
	return err
}

// isStarting reports whether a start of a run is under way.
func (o *Owner) isStarting(id spool.RunID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.starting[id] != nil
}

// noQuorum explains why nothing was started.
func (o *Owner) noQuorum(ctx context.Context, id spool.RunID, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, spool.ErrExists) {
		return fmt.Errorf("start run %s: %w", id, err)
	}
	hint := `nothing was started; "spool cluster status" says how the cluster is`
	if rebuild := (*RebuildError)(nil); errors.As(err, &rebuild) {
		hint = rebuild.hint()
	}
	se := &spool.StartError{Reason: "other", Err: fmt.Errorf("claim run %s: %w", id, err), Hint: hint}
	if isFull(se) {
		se.Hint = fmt.Sprintf("the disk of node %s is full: free some space", o.node)
	}
	return se
}

// abandon looks after a claim without an answer, whose run was not started: if it was
// written after all, it is taken back.
func (o *Owner) abandon(f Fact, expect uint64, rec runRecord) {
	o.tasks.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, abandonTimeout)
		defer cancel()
		// What is said now replaces the claim, or takes its place.
		rev := expect
		if now, err := o.facts.Get(ctx, f.Key); err == nil && string(now.Data) == string(f.Data) {
			rev = now.Rev
		}
		rec.State, rec.Nonce = runFailed, newNonce()
		if _, err := o.facts.Put(ctx, Fact{Key: f.Key, Data: encode(&rec)}, rev, keepFailed); errors.Is(err, ErrConflict) {
			if now, err := o.facts.Get(ctx, f.Key); err == nil && string(now.Data) == string(f.Data) {
				_, _ = o.facts.Put(ctx, Fact{Key: f.Key, Data: encode(&rec)}, now.Rev, keepFailed) // else the next epoch finds it
			}
		}
	})
}

// keepFailed is how long the store knows that a run was never started.
const keepFailed = 10 * time.Minute

// fail says that a run that was claimed was never started.
func (o *Owner) fail(c claimed) {
	ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
	defer cancel()
	c.rec.State, c.rec.Nonce = runFailed, newNonce()
	if _, err := o.facts.Put(ctx, Fact{Key: runPrefix + string(c.rec.ID), Data: encode(&c.rec)}, c.rev, keepFailed); err != nil {
		o.log.Warn("a start that failed stays claimed until the node begins a new epoch", "run", c.rec.ID, "err", err)
		return
	}
	if err := o.claims.drop(c.rec.ID); err != nil {
		o.log.Warn("a start that failed stays claimed if the store goes back in time", "run", c.rec.ID, "err", err)
	}
}

// claimName gives a name to a run that is about to be live. A name belongs to one live
// run of a subject.
func (o *Owner) claimName(ctx context.Context, id spool.RunID, name string, labels map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	key := nameKey(labels[record.LabelSubject], name)
	expect := uint64(0)
	for {
		rec := nameRecord{Version: 1, Run: id, Node: o.node, Nonce: newNonce()}
		_, err := o.facts.Put(ctx, Fact{Key: key, Data: encode(&rec)}, expect, 0)
		if !errors.Is(err, ErrConflict) {
			return err
		}
		var is nameRecord
		now, err := o.facts.Get(ctx, key)
		if errors.Is(err, ErrNoFact) {
			expect = 0
			continue
		}
		if err == nil {
			err = json.Unmarshal(now.Data, &is)
		}
		if err != nil {
			return err
		}
		if is.Run == id {
			return nil
		}
		taken, err := o.isLive(ctx, is.Run)
		if err != nil {
			return err
		}
		if taken {
			return fmt.Errorf("%w: the live run %s has the name %q", spool.ErrExists, is.Run, name)
		}
		expect = now.Rev
	}
}

// isLive reports whether a run has not ended. It may be about to start.
func (o *Owner) isLive(ctx context.Context, id spool.RunID) (bool, error) {
	if id == "" {
		return false, nil
	}
	info, err := o.stat(ctx, id)
	if err == nil {
		return info.State != spool.StateClosed, nil
	}
	if !errors.Is(err, spool.ErrNotFound) {
		return false, err
	}
	rec, _, err := o.facts.run(ctx, id)
	return err == nil && rec.State == runClaimed, nil
}

// freeName lets other runs have a name, if a run has it.
func freeName(ctx context.Context, facts Facts, id spool.RunID, name string, labels map[string]string) {
	if name == "" {
		return
	}
	key := nameKey(labels[record.LabelSubject], name)
	var is nameRecord
	now, err := facts.Get(ctx, key)
	if err == nil && json.Unmarshal(now.Data, &is) == nil && is.Run == id {
		rec := nameRecord{Version: 1, Nonce: newNonce()}
		_, _ = facts.Put(ctx, Fact{Key: key, Data: encode(&rec)}, now.Rev, keepFailed) // else the end of the run frees it
	}
}

// Remove implements [spool.Remover]. The end of a run that is removed at once is not
// lost.
func (o *Owner) Remove(ctx context.Context, ids []spool.RunID, dry bool) (spool.Removal, error) {
	var ended []spool.Info
	if !dry {
		for _, id := range ids {
			if o.register.has(id) {
				if info, err := o.Stat(ctx, id); err == nil && info.State == spool.StateClosed {
					ended = append(ended, info)
				}
			}
		}
	}
	removal, err := o.Backend.Remove(ctx, ids, dry)
	if err == nil {
		for i := range ended {
			o.register.add(claimed{}, ended[i])
		}
	}
	return removal, err
}

// Rename implements [spool.Renamer].
func (o *Owner) Rename(ctx context.Context, id spool.RunID, name string) (spool.Info, error) {
	info, err := o.Stat(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	if info.State == spool.StateClosed || name == info.Name {
		return o.Backend.Rename(ctx, id, name)
	}
	if name != "" {
		if err := o.claimName(ctx, id, name, info.Labels); err != nil {
			return spool.Info{}, fmt.Errorf("rename run %s: %w", id, err)
		}
	}
	renamed, err := o.Backend.Rename(ctx, id, name)
	free := info.Name
	if err != nil {
		free = name
	}
	o.tasks.start(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, settleTimeout)
		defer cancel()
		freeName(ctx, o.facts, id, free, info.Labels)
	})
	return renamed, err
}
