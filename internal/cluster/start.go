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
		if node, err := r.claimant(ctx, spec.ID); err == nil {
			info, err := r.startAt(ctx, node, spec)
			if !errors.Is(err, errElsewhere) && !isUnclaimed(err) {
				return info, err
			}
			r.forget(spec.ID) // its claim was taken back since
		} else if !errors.Is(err, ErrNoFact) && !errors.Is(err, ErrUndecided) { // the claim decides
			return spool.Info{}, err
		}
	}
	near, err := r.near(ctx, &spec)
	if err != nil {
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
