package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
)

// DefaultKeep is how long the store knows a run after its end. As long as that its id
// cannot be started again anywhere, whatever its node keeps.
const DefaultKeep = 30 * 24 * time.Hour

const (
	registerWorkers = 8
	registerPause   = 500 * time.Millisecond // before a write is tried again
	registerTimeout = 10 * time.Second       // of one write
	sweepEvery      = 30 * time.Second
)

// register keeps the facts about the runs of this node current: what was started and
// how it ended. It follows what the runs of the machine do, so that a run which was
// started past the cluster is known to all nodes, too.
type register struct {
	node     string
	facts    *store
	backend  Backend
	claims   *claims
	outbox   *outbox
	starting func(spool.RunID) bool // a start of the run is under way
	name     func(ctx context.Context, id spool.RunID, name string, labels map[string]string) error
	keep     time.Duration
	log      *slog.Logger

	mu    sync.Mutex
	epoch uint64
	runs  map[spool.RunID]*entry // those that are not closed, or whose end is not written
	due   []spool.RunID
	more  chan struct{}                            // has room for one; filled when there is something due
	said  uint64                                   // the last epoch in which assert was done
	moved chan struct{}                            // closed when said or runs changes; nil if nobody waits
	freed func()                                   // is called when a run has ended
	ended func(context.Context, spool.RunID) error // is called when the store knows that a run has ended that may be started again
}

// entry is what the register knows about a run.
type entry struct {
	rec    runRecord // as it was written; the zero value if it was not
	rev    uint64
	info   spool.Info // the newest
	mirror string     // the node that copies its log, which the fact names
	queued bool
	busy   bool
}

func newRegister(o *Options, facts *store, c *claims) *register {
	return &register{node: o.Name, facts: facts, backend: o.Backend, claims: c, keep: o.Keep, log: o.Log, runs: make(map[spool.RunID]*entry), more: make(chan struct{}, 1), freed: func() {}, ended: func(context.Context, spool.RunID) error { return nil }}
}

// live returns how many runs have not ended.
func (r *register) live() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.runs {
		if e.info.State != spool.StateClosed {
			n++
		}
	}
	return n
}

// add takes a run that this node has claimed and started.
func (r *register) add(c claimed, info spool.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(info.ID)
	if c.rev > e.rev {
		e.rec, e.rev = c.rec, c.rev
	}
	if e.mirror == "" {
		e.mirror = c.rec.Mirror
	}
	r.update(e, &info)
}

// mirrorEntry is what the register knows about the copy of a run.
type mirrorEntry struct {
	node string // empty without a copy
	last spool.Seq
	live bool
}

// settled waits until the store knows of every run of this node, in an epoch, that it has
// ended. The error is a [spool.ErrBusy] if one has not.
func (r *register) settled(ctx context.Context, epoch uint64) error {
	for {
		if live := r.live(); live > 0 {
			return fmt.Errorf("%w: %d runs of this node have not ended", spool.ErrBusy, live)
		}
		r.mu.Lock()
		if r.said >= epoch && len(r.runs) == 0 {
			r.mu.Unlock()
			return nil
		}
		if r.moved == nil {
			r.moved = make(chan struct{})
		}
		moved := r.moved
		r.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("%w: the store has not taken yet what became of all runs of this node", ErrUndecided)
		}
	}
}

// forget takes a run off the list. The caller holds r.mu.
func (r *register) forget(id spool.RunID) {
	delete(r.runs, id)
	r.tell()
}

// tell wakes who waits in settled. The caller holds r.mu.
func (r *register) tell() {
	if r.moved != nil {
		close(r.moved)
		r.moved = nil
	}
}

// mirrors returns who copies the runs of this node.
func (r *register) mirrors() map[spool.RunID]mirrorEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	entries := make(map[spool.RunID]mirrorEntry, len(r.runs))
	for id, e := range r.runs {
		if e.info.ID != "" {
			entries[id] = mirrorEntry{e.mirror, e.info.Last, e.info.State != spool.StateClosed}
		}
	}
	return entries
}

// setMirror notes who copies a run from now on.
func (r *register) setMirror(id spool.RunID, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.runs[id]; e != nil {
		e.mirror = node
		r.queue(e)
	}
}

// has reports whether the end of a run is not written yet.
func (r *register) has(id spool.RunID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runs[id] != nil
}

// entry returns the entry of a run. The caller holds r.mu.
func (r *register) entry(id spool.RunID) *entry {
	e := r.runs[id]
	if e == nil {
		e = new(entry)
		r.runs[id] = e
	}
	return e
}

// update takes a newer description. The caller holds r.mu.
func (r *register) update(e *entry, info *spool.Info) {
	if e.info.ID == "" || e.info.State != spool.StateClosed {
		e.info = *info
		if info.State == spool.StateClosed {
			r.freed()
		}
	}
	r.queue(e)
}

// queue has an entry written, if that is needed. The caller holds r.mu.
func (r *register) queue(e *entry) {
	if e.queued || e.busy || r.epoch == 0 || !r.isDue(e) {
		return
	}
	e.queued = true
	r.due = append(r.due, e.info.ID)
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// isDue reports whether the fact about a run is not what it should be.
func (r *register) isDue(e *entry) bool {
	want := stateOf(&e.info)
	if want == runHeld && e.rec.State == runSuperseded {
		return false // it is being ended
	}
	return e.rec.State != want || want == runHeld && (e.rec.Epoch != r.epoch || e.rec.Info.Name != e.info.Name || e.rec.Mirror != e.mirror)
}

// stateOf returns the state of the fact about a run.
func stateOf(i *spool.Info) runState {
	if i.State == spool.StateClosed {
		return runClosed
	}
	return runHeld
}

// run keeps the facts of an epoch current until the context ends.
func (r *register) run(ctx context.Context, epoch uint64) {
	r.mu.Lock()
	r.epoch = epoch
	for _, e := range r.runs {
		e.queued = false
	}
	r.due = nil
	for _, e := range r.runs {
		r.queue(e)
	}
	r.mu.Unlock()
	var wg sync.WaitGroup
	defer wg.Wait()
	for range registerWorkers {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Go(func() { r.assert(ctx, epoch) })
	wg.Go(func() { r.sweep(ctx) })
	for ctx.Err() == nil {
		// A run that began and ended between two looks is selected, too.
		since := spool.Filter{Since: r.facts.clock().Add(-time.Minute)}
		for info, err := range r.backend.Watch(ctx, since) {
			if err == nil && info.ID != "" {
				r.saw(&info)
			}
		}
		pause(ctx, registerPause, nil)
	}
}

// saw takes what a watch tells.
func (r *register) saw(info *spool.Info) {
	if info.State == spool.StateRemoved {
		return // it has ended before
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.runs[info.ID]; !known && info.State == spool.StateClosed {
		return // its end is written, or nobody asked for it
	}
	r.update(r.entry(info.ID), info)
}

// sweep looks now and then after runs of whose end no watch told: they were removed at
// once.
func (r *register) sweep(ctx context.Context) {
	for {
		pause(ctx, sweepEvery, nil)
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		ids := slices.Collect(maps.Keys(r.runs))
		r.mu.Unlock()
		for _, id := range ids {
			info, err := r.backend.Stat(ctx, id)
			r.mu.Lock()
			e := r.runs[id]
			switch {
			case e == nil || ctx.Err() != nil:
			case err == nil:
				r.update(e, &info)
			case errors.Is(err, spool.ErrNotFound):
				info = e.info
				info.State, info.Outcome = spool.StateClosed, &spool.Outcome{Kind: spool.Unknown, Reason: "it was removed"}
				r.update(e, &info)
			}
			r.mu.Unlock()
		}
	}
}

// assert says of every run of this node that the store believes to be open what became
// of it.
func (r *register) assert(ctx context.Context, epoch uint64) {
	generation := r.facts.generation()
	for ctx.Err() == nil {
		err := failpoint.Inject("cluster.assert")
		if err == nil {
			err = r.assertAll(ctx)
		}
		if err == nil && r.facts.identity.asserted() != generation {
			// The store may know less than it did.
			if err = r.assertLocal(ctx); err == nil {
				err = r.facts.back(ctx, generation)
			}
		}
		if err == nil {
			r.mu.Lock()
			r.said = epoch
			r.tell()
			r.mu.Unlock()
			return
		}
		r.log.Info("the runs of this node cannot be asserted yet", "err", err)
		pause(ctx, registerPause, nil)
	}
}

func (r *register) assertAll(ctx context.Context) error {
	generation := r.facts.generation()
	rebuilt := r.facts.identity.asserted() != generation
	for f, err := range r.facts.All(ctx, runPrefix) {
		if err != nil {
			return err
		}
		var rec runRecord
		if json.Unmarshal(f.Data, &rec) != nil || rec.Node != r.node || !rec.isOpen() && rec.State != runSuperseded {
			continue
		}
		info, err := r.backend.Stat(ctx, rec.ID)
		switch {
		case errors.Is(err, spool.ErrNotFound) && rec.State == runClaimed && rebuilt && rec.Generation != generation:
			continue // the store may have forgotten that it was started; see assertLocal
		case errors.Is(err, spool.ErrNotFound) && rec.State == runClaimed:
			if err := r.never(ctx, rec, f.Rev); err != nil {
				return err
			}
			continue
		case errors.Is(err, spool.ErrNotFound):
			info = rec.Info
			info.State, info.Outcome = spool.StateClosed, &spool.Outcome{Kind: spool.Unknown, Reason: noLog(r.node)}
		case err != nil:
			return err
		}
		if rec.State == runSuperseded && info.State != spool.StateClosed {
			r.end(ctx, rec.ID, rec.Next)
		}
		r.add(claimed{rec, f.Rev}, info)
	}
	return nil
}

// never says of a run that was claimed in an earlier epoch that it was not started. A
// start that is under way is left alone: it may have been claimed just before the node
// was fenced, and nobody else may start it. One that begins now claims it anew, with a
// later revision.
func (r *register) never(ctx context.Context, rec runRecord, rev uint64) error {
	r.mu.Lock()
	epoch := r.epoch
	r.mu.Unlock()
	if rec.Epoch >= epoch || r.starting(rec.ID) {
		return nil // it is about to start
	}
	rec.State, rec.Nonce = runFailed, newNonce()
	_, err := r.facts.Put(ctx, Fact{Key: runPrefix + string(rec.ID), Data: encode(&rec)}, rev, keepFailed)
	if errors.Is(err, ErrConflict) {
		return nil
	}
	if err == nil {
		err = r.claims.drop(rec.ID)
	}
	return err
}

// end ends a run of this node in whose place another one was started.
func (r *register) end(ctx context.Context, id, next spool.RunID) {
	r.log.Warn("a run is ended: another one took its place while this node was lost", "run", id, "next", next)
	if err := r.backend.Control(ctx, id, spool.Control{Op: spool.ControlKill}); err != nil {
		r.log.Warn("end a run in whose place another one was started", "run", id, "err", err)
	}
}

// isHeld reports whether a run of this node must end with its lease.
func (r *register) isHeld() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.runs {
		if e.info.State != spool.StateClosed && isExclusive(e.info.Labels) {
			return true
		}
	}
	return false
}

// work writes what is due.
func (r *register) work(ctx context.Context) {
	for ctx.Err() == nil {
		r.mu.Lock()
		if len(r.due) == 0 {
			r.mu.Unlock()
			select {
			case <-r.more:
				continue
			case <-ctx.Done():
				return
			}
		}
		id := r.due[0]
		r.due = r.due[1:]
		if len(r.due) > 0 {
			select {
			case r.more <- struct{}{}:
			default:
			}
		}
		e := r.runs[id]
		if e == nil {
			r.mu.Unlock()
			continue
		}
		e.queued, e.busy = false, true
		rec := runRecord{Version: 1, ID: id, Node: r.node, Epoch: r.epoch, State: stateOf(&e.info), Nonce: newNonce(), Next: e.rec.Next, Mirror: e.mirror, Info: recordInfo(&e.info)}
		rev := e.rev
		r.mu.Unlock()
		if rec.State == runClosed { // the store keeps it from now on
			if err := r.claims.add(id); err != nil {
				r.log.Warn("note the end of a run", "run", id, "err", err)
			}
		}
		rev, rec, err := r.write(ctx, rec, rev, r.keep)
		r.mu.Lock()
		e.busy = false
		switch {
		case err == nil:
			e.rec, e.rev = rec, rev
		case errors.Is(err, errElsewhere): // it is not ours any more
			r.forget(id)
		}
		if e.rec.State == runClosed {
			r.forget(id)
		} else if err == nil {
			r.queue(e)
		}
		r.mu.Unlock()
		if err != nil && !errors.Is(err, errElsewhere) {
			pause(ctx, registerPause, nil)
			gone := r.isGone(ctx, id)
			r.mu.Lock()
			if gone {
				e.rev = 0
			}
			r.queue(e)
			r.mu.Unlock()
		}
	}
}

// isGone reports whether the store has forgotten a run.
func (r *register) isGone(ctx context.Context, id spool.RunID) bool {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	_, err := r.facts.Get(ctx, runPrefix+string(id))
	return errors.Is(err, ErrNoFact)
}

// write writes the fact about a run. The store keeps that of one that has ended for some
// time.
func (r *register) write(ctx context.Context, rec runRecord, rev uint64, keep time.Duration) (uint64, runRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	if rec.State != runClosed {
		keep = 0
	} else {
		freeName(ctx, r.facts, rec.ID, rec.Info.Name, rec.Info.Labels)
	}
	for {
		now, err := r.facts.Put(ctx, Fact{Key: runPrefix + string(rec.ID), Data: encode(&rec)}, rev, keep)
		if err == nil && rec.State == runClosed && rec.Next == "" && mayRestart(rec.Info.Labels) {
			if err := r.ended(ctx, rec.ID); err != nil { // a control node finds it
				r.log.Info("a run has ended, and the queue still has it", "run", rec.ID, "err", err)
			}
		}
		if !errors.Is(err, ErrConflict) {
			return now, rec, err
		}
		var is runRecord
		f, err := r.facts.Get(ctx, runPrefix+string(rec.ID))
		switch {
		case errors.Is(err, ErrNoFact):
			rev = 0
			continue
		case err == nil:
			err = json.Unmarshal(f.Data, &is)
		}
		if err != nil {
			return 0, rec, err
		}
		if is.Node != r.node && is.Node != "" {
			return 0, rec, errElsewhere
		}
		if is.State == runClosed && is.Node != "" && (rec.State != runClosed || is.Info.Last == rec.Info.Last) {
			return f.Rev, is, nil
		}
		if is.State == runSuperseded && rec.State != runClosed {
			r.end(ctx, rec.ID, is.Next)
			return f.Rev, is, nil
		}
		rec.Next = is.Next
		rev, rec.Nonce = f.Rev, newNonce()
	}
}
