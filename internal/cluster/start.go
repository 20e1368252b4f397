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
	at := "" // the node that has the run, as far as this one knows
	if !known {
		spec.ID = spool.RunID(newNonce())
	} else if spec.ID.Check() == nil {
		// Who has it starts nothing new. Without a fact nobody claimed it, and nodes
		// that do not answer need not be asked.
		var never *neverError
		node, err := r.claimant(ctx, spec.ID)
		switch {
		case err == nil:
			at = node
		case errors.As(err, &never):
			return never.same(&spec)
		case !errors.Is(err, ErrNoFact) && !errors.Is(err, ErrUndecided): // the claim decides
			return spool.Info{}, err
		}
	}
	for try := 0; ; try++ {
		info, err := r.startOrRepeat(ctx, at, spec)
		if at != "" && isUnclaimed(err) { // its claim was taken back since
			r.forget(spec.ID)
			at = ""
			continue
		}
		if !known || !errors.Is(err, spool.ErrExists) || isNameTaken(err) || try == startTries {
			return info, err
		}
		rec, recErr := r.record(ctx, spec.ID)
		switch {
		case ctx.Err() != nil:
			return spool.Info{}, context.Cause(ctx)
		case errors.Is(recErr, ErrUndecided) && (at == "" || errors.Is(err, errElsewhere)):
			return spool.Info{}, r.owner.noQuorum(ctx, spec.ID, recErr) // nobody knows now whether it is the same run
		case recErr != nil && !errors.Is(recErr, ErrNoFact):
			return info, err
		case recErr != nil || rec.State == runFailed: // the node that had claimed it took that back
			if at != "" && !errors.Is(err, errElsewhere) {
				return info, err
			}
			r.forget(spec.ID)
			at = ""
		case rec.Node == "" || rec.Node == at: // it is another run
			return info, err
		default: // another node was faster, or what this one remembered was old
			r.remember(spec.ID, rec.Node)
			at = rec.Node
		}
	}
}

// startOrRepeat has a run started at the node that has it, or at one that it chooses.
func (r *Router) startOrRepeat(ctx context.Context, at string, spec spool.Spec) (spool.Info, error) {
	if at != "" {
		return r.repeat(ctx, at, spec)
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
	return r.place(ctx, &spec, near)
}

// startTries is how often a start is tried again because another node has the run, or
// had claimed it and took that back.
const startTries = 4

// place starts a run on one of the nodes that it chooses.
func (r *Router) place(ctx context.Context, spec *spool.Spec, pinned string) (spool.Info, error) {
	nodes, err := r.choose(ctx, spec, pinned)
	if err != nil {
		return spool.Info{}, err
	}
	var info spool.Info
	for _, node := range nodes {
		r.members.place(node)
		info, err = r.startAt(ctx, node, *spec)
		if !isRefusal(err) {
			break
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
