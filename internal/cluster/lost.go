package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Archive has the logs of finished runs, also of nodes that are gone. A run that it
// does not have is [spool.ErrNotFound].
type Archive interface {
	Stat(ctx context.Context, id spool.RunID) (spool.Info, error)
	Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error)
	Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error]
	Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error)
	record.Follower
}

// LostError says that the node of a run was fenced and does not answer, or is back without
// the log: nobody knows what became of the run.
type LostError struct {
	Run    spool.RunID
	Node   string
	Reason string
	info   spool.Info // what was known
	mirror string     // the node that copied it; empty without one
	// unclaimed says that the run was not claimed when the node was lost: another node
	// may start it.
	unclaimed bool
	// noLog says that the node is back without the log.
	noLog bool
}

func (e *LostError) Error() string {
	if e.noLog {
		return fmt.Sprintf("node %s no longer has the log of run %s", e.Node, e.Run)
	}
	return fmt.Sprintf("node %s, which has run %s, is lost: %s", e.Node, e.Run, e.Reason)
}

// Is makes it a [spool.ErrLost].
func (e *LostError) Is(target error) bool { return target == spool.ErrLost }

// describe returns the description of a run whose node is lost.
func (e *LostError) describe() spool.Info {
	i := e.info
	if i.State != spool.StateClosed {
		i.State, i.Outcome = spool.StateClosed, &spool.Outcome{Kind: spool.Unknown, Reason: e.Error()}
	}
	i.ID, i.Node = e.Run, e.Node
	return i
}

// noLog is the reason of the outcome of a run whose node is back without it.
func noLog(node string) string { return fmt.Sprintf("node %s no longer has its log", node) }

// isWithoutLog reports whether the node of a run is back without it.
func (r *runRecord) isWithoutLog() bool {
	return r.Info.Outcome != nil && r.Info.Outcome.Reason == noLog(r.Node)
}

// withoutLog returns a [*LostError] in place of the error of a node that does not have a
// run, if it had the run when it was last up. Other errors are returned as they are. A
// node that has just come back may not have said yet that it has the run no more: that is
// awaited.
func (r *Router) withoutLog(ctx context.Context, id spool.RunID, err error) error {
	if !errors.Is(err, spool.ErrNotFound) || ctx.Err() != nil {
		return err
	}
	rec, recErr := r.record(ctx, id)
	for began := time.Now(); recErr == nil && rec.State == runHeld && time.Since(began) < patience && !r.isClosed(); {
		pause(ctx, retryEvery, nil)
		rec, recErr = r.record(ctx, id)
	}
	if recErr != nil || !rec.isWithoutLog() {
		return err
	}
	return &LostError{Run: id, Node: rec.Node, Reason: rec.Info.Outcome.Reason, info: rec.Info, mirror: rec.Mirror, noLog: true}
}

// reason says why a node cannot be asked.
func (n *nodeRecord) reason() string {
	if n.State == nodeGone {
		return "it left the cluster"
	}
	return n.Reason
}

// lost returns a [*LostError] if the node of a run was fenced after the run was
// claimed, or left, and errElsewhere if another node has claimed the run.
func (r *Router) lost(ctx context.Context, node string, id spool.RunID) error {
	n, ok := r.members.get(node)
	if !ok || n.holds() {
		return nil
	}
	lost := &LostError{Run: id, Node: node, Reason: n.reason()}
	if id == "" {
		return lost
	}
	rec, err := r.record(ctx, id)
	switch {
	case errors.Is(err, ErrNoFact): // it was never in the store
		lost.unclaimed = true
	case err != nil:
		return nil // not now
	case rec.State == runFailed:
		lost.unclaimed = true
	case rec.Node != node:
		return fmt.Errorf("run %s: node %s: %w", id, rec.Node, errElsewhere)
	case rec.isOpen() && n.State == nodeLost && !n.isFenced(rec.Epoch):
		return nil
	case rec.State == runClaimed:
		lost.Reason += "; the run was claimed, and its start was not confirmed"
	}
	if rec.Next != "" {
		lost.Reason += fmt.Sprintf("; run %s takes its place", rec.Next)
	}
	lost.info, lost.mirror = rec.Info, rec.Mirror
	return lost
}

// archived describes a run after its node gave an error. It reports false if the error
// is the answer: the run is not in the archive, or its node said something else than
// that it is lost, does not answer or does not have the run any more.
func (r *Router) archived(ctx context.Context, id spool.RunID, err error) (spool.Info, bool) {
	lost := errors.Is(err, spool.ErrLost)
	if r.archive == nil || ctx.Err() != nil || !lost && !errors.Is(err, spool.ErrNotFound) && !isCut(err) {
		return spool.Info{}, false
	}
	info, err := r.archive.Stat(ctx, id)
	if err != nil {
		return spool.Info{}, false
	}
	if rec, err := r.record(ctx, id); err == nil { // else it was long ago
		info.Node = rec.Node
	}
	return info, true
}

// followLost ends the log of a run whose node is lost.
func (r *Router) followLost(lost *LostError, yield func(spool.Event, error) bool) {
	failed := spool.Outcome{Kind: spool.Unknown, Reason: lost.Error()}.Event()
	failed.Run, failed.Time = lost.Run, r.facts.clock()
	if yield(failed, nil) {
		yield(spool.Event{Run: lost.Run, Time: failed.Time, Kind: spool.KindClosed}, nil)
	}
}
