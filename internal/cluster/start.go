package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spool-run/spool"
)

// Start implements [spool.Backend]. It has the run started on a node that it chooses.
func (r *Router) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if r.isClosed() {
		return spool.Info{}, spool.ErrClosed
	}
	known := spec.ID != ""
	if !known {
		spec.ID = spool.RunID(newNonce())
	} else if spec.ID.Check() == nil {
		// Who has it starts nothing new. Without a fact nobody claimed it, and nodes
		// that do not answer need not be asked.
		var never *neverError
		if node, err := r.claimant(ctx, spec.ID); err == nil {
			info, err := r.repeat(ctx, node, spec)
			if errors.Is(err, spool.ErrExists) && !isNameTaken(err) {
				// What this node remembers may be old: that run was never started there,
				// or another one had its id.
				if rec, recErr := r.record(ctx, spec.ID); recErr == nil && rec.Node != "" && rec.Node != node && rec.State != runFailed {
					r.remember(spec.ID, rec.Node)
					return r.repeat(ctx, rec.Node, spec)
				}
			}
			if !errors.Is(err, errElsewhere) && !isUnclaimed(err) {
				return info, err
			}
			r.forget(spec.ID) // its claim was taken back since
		} else if errors.As(err, &never) {
			return never.same(&spec)
		} else if !errors.Is(err, ErrNoFact) && !errors.Is(err, ErrUndecided) { // the claim decides
			return spool.Info{}, err
		}
	}
	near, err := r.near(ctx, &spec)
	if err != nil {
		return spool.Info{}, err
	}
	if isQueued(&spec) {
		return r.queue.submit(ctx, &spec, near)
	}
	if err := r.awaitOpen(ctx, spec.ID); err != nil {
		return spool.Info{}, err
	}
	nodes, err := r.choose(ctx, &spec, near)
	if err != nil {
		return spool.Info{}, err
	}
	var info spool.Info
	for _, node := range nodes {
		r.members.place(node)
		info, err = r.startAt(ctx, node, spec)
		if !isRefusal(err) {
			break
		}
	}
	if known && errors.Is(err, spool.ErrExists) && !isNameTaken(err) {
		// Another node was faster.
		if rec, recErr := r.record(ctx, spec.ID); recErr == nil && rec.State != runFailed {
			r.remember(spec.ID, rec.Node)
			return r.startAt(ctx, rec.Node, spec)
		}
	}
	return info, err
}

// awaitOpen waits until the store takes claims, if it went back in time.
func (r *Router) awaitOpen(ctx context.Context, id spool.RunID) error {
	if meta, _, _ := r.facts.state(); !meta.Rebuilding {
		return nil // the claim decides
	}
	octx, cancel := context.WithTimeout(ctx, r.owner.patience)
	defer cancel()
	_, err := r.facts.open(octx)
	if err != nil {
		err = r.owner.noQuorum(ctx, id, err)
	}
	return err
}

// repeat answers a start of a run that a node has. If the run came through the queue,
// it may be about to start there.
func (r *Router) repeat(ctx context.Context, node string, spec spool.Spec) (spool.Info, error) {
	if !isQueued(&spec) {
		return r.startAt(ctx, node, spec)
	}
	if rec, _, err := r.queue.get(ctx, spec.ID); err == nil && rec.State == queueWaiting {
		return rec.Info, r.queue.same(&rec, &spec)
	}
	return r.startAt(ctx, node, spec)
}

// startAt starts a run on a node. A node that does not answer is asked again, and no
// other one: it may have started the run.
func (r *Router) startAt(ctx context.Context, node string, spec spool.Spec) (info spool.Info, err error) {
	err = r.on(ctx, node, spec.ID, patience, func(b Backend) (err error) {
		info, err = b.Start(ctx, spec)
		return err
	})
	if lost := (*LostError)(nil); errors.As(err, &lost) && lost.info.ID != "" && !lost.unclaimed {
		same := recordInfo(&spool.Info{Argv: spec.Argv})
		if !slices.Equal(lost.info.Argv, same.Argv) || lost.info.Engine != cmp.Or(spec.Engine, spool.EngineProcess) {
			return spool.Info{}, fmt.Errorf("start run %s: %w", spec.ID, spool.ErrExists)
		}
		return lost.describe(), nil
	}
	if err == nil {
		r.remember(info.ID, node)
		info.Node = node
	}
	return info, err
}

func isNameTaken(err error) bool {
	var se *spool.StartError
	return errors.As(err, &se) && se.Reason == "name_taken"
}
