package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
)

// How nodes take runs from the queue.
const (
	// bidStep is how long a node leaves a run to each node that comes before it, so
	// that not all of them claim it at once.
	bidStep = 5 * time.Millisecond
	// takersAtOnce is how many runs a node starts at once.
	takersAtOnce = 16
	// laterFirst is how long a node leaves a run that it could not start alone. It
	// doubles up to laterMost.
	laterFirst = 250 * time.Millisecond
	laterMost  = 30 * time.Second
)

// take starts runs of the queue while this node has room, until the context ends.
func (q *queue) take(ctx context.Context) {
	for ctx.Err() == nil {
		w, wait := q.next(time.Now())
		if w == nil {
			pause(ctx, wait, q.news)
			continue
		}
		q.owner.tasks.start(func(ctx context.Context) {
			q.try(ctx, w)
			q.mu.Lock()
			delete(q.taking, w.id)
			q.mu.Unlock()
			q.wake()
		})
	}
}

// next returns the run that this node starts now. If there is none, it returns how
// long it stays so without news.
func (q *queue) next(now time.Time) (*waiting, time.Duration) {
	wait := q.interval
	if !q.owner.session.isUp() {
		return nil, min(wait, q.owner.session.timing.Renew)
	}
	live := q.owner.register.live()
	self, _ := q.members.get(q.self)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.waiting) == 0 || len(q.taking) >= takersAtOnce || live+len(q.taking) >= q.slots {
		return nil, wait
	}
	nodes, _ := q.members.all()
	w := q.order.next(self.serves, func(w *waiting) bool {
		if q.taking[w.id] || !self.takes(w, w.wants(nodes)) {
			return false
		}
		if left := w.retry.Sub(now); left > 0 {
			wait = min(wait, left)
			return false
		}
		return true
	})
	if w == nil {
		return nil, wait
	}
	if !w.ranked {
		w.rank, w.ranked = q.rank(w, nodes), true
	}
	if left := w.seen.Add(time.Duration(w.rank) * bidStep).Sub(now); left > 0 {
		return nil, min(wait, left)
	}
	q.taking[w.id], w.served = true, true
	q.order.served[w.turn()]++
	return w, 0
}

// serves reports whether runs of a line may start on a node.
func (n *member) serves(l line) bool {
	if l.node != "" {
		return l.node == n.Name
	}
	if pools := n.Labels[labelPool]; pools == "" || pools == l.pool {
		return cmp.Or(pools, DefaultPool) == l.pool
	}
	return slices.Contains(poolsOf(n.Labels), l.pool)
}

// wants is what a run that waits needs of its node.
func (w *waiting) wants(nodes []member) wants {
	return wantsFor(w.info.Labels, w.engine, w.memory, nodes)
}

// takes reports whether a node is one on which a run may start that has these wants.
func (n *member) takes(w *waiting, want wants) bool {
	if w.node != "" || !n.serves(w.line()) {
		return w.node == n.Name
	}
	return want.refusal(n) == ""
}

// rank returns how many other nodes come before this one for a run. It is another
// order for every run.
func (q *queue) rank(w *waiting, nodes []member) int {
	weight := func(node string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(node + "/" + string(w.id))) // never fails
		return h.Sum64()
	}
	own, rank, want := weight(q.self), 0, w.wants(nodes)
	for i := range nodes {
		if n := &nodes[i]; n.Name != q.self && n.State == nodeUp && n.Live < n.Slots && weight(n.Name) > own && n.takes(w, want) {
			rank++
		}
	}
	return rank
}

// try starts a run of the queue on this node. The run leaves the queue when its own
// fact says what became of it.
func (q *queue) try(ctx context.Context, w *waiting) {
	rec, rev, err := q.get(ctx, w.id)
	switch {
	case errors.Is(err, ErrNoFact):
		q.mu.Lock()
		q.drop(w.id)
		q.mu.Unlock()
		return
	case err != nil:
		q.later(w, err)
		return
	case rec.State != queueWaiting:
		q.saw(&rec, rev)
		return
	}
	spec, err := q.unseal(&rec)
	if err == nil {
		_, err = q.owner.Start(ctx, withAttempt(spec))
	}
	switch {
	case err == nil:
		rec.Owner = q.self
	case ctx.Err() != nil || isRefusal(err) || errors.Is(err, spool.ErrClosed) || isCut(err):
		q.later(w, err)
		return
	default:
		// The run was started by another node, or will never be: its fact says which.
		if err = q.settle(ctx, &rec, err.Error()); err != nil {
			q.later(w, err)
			return
		}
	}
	if err := failpoint.Inject("cluster.queue.done"); err != nil {
		q.later(w, err)
		return
	}
	if err := q.done(ctx, &rec, rev); err != nil {
		q.later(w, err) // the next claim says that it was started
	}
}

// later has this node try a run again after some time.
func (q *queue) later(w *waiting, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.retry = time.Now().Add(min(laterFirst<<min(w.tries, 16), laterMost))
	w.tries++
	if w.served {
		w.served = false
		q.order.served[w.turn()]--
	}
	q.log.Info("a run of the queue does not start here now", "run", w.id, "err", err)
}

// errClaimed says that a run was claimed, and perhaps not started.
var errClaimed = errors.New("a node has claimed it and not said that it started it")

// settle says of a run that it will never be started, unless some node has started it.
// The record then describes its end. While nobody knows whether a node did that which
// claimed it, the error is errClaimed.
func (q *queue) settle(ctx context.Context, rec *queueRecord, reason string) error {
	info := rec.Info
	info.State, info.Ended = spool.StateClosed, q.facts.clock().UTC().Round(0)
	info.Outcome = &spool.Outcome{Kind: spool.Failed, Reason: reason}
	end := runRecord{Version: 1, ID: rec.ID, State: runClosed, Info: info}
	expect := uint64(0)
	for {
		end.Nonce = newNonce()
		_, err := q.facts.Put(ctx, Fact{Key: runPrefix + string(rec.ID), Data: encode(&end)}, expect, q.keep)
		if err == nil {
			rec.Info = info
			return nil
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		is, rev, err := q.facts.run(ctx, rec.ID)
		switch {
		case errors.Is(err, ErrNoFact):
			expect = 0
		case err != nil:
			return err
		case is.State == runFailed: // nobody has started it
			expect = rev
		case is.State == runClaimed || is.State == runSuperseded:
			return errClaimed // a settler takes it out, if another run takes its place
		case is.Node == "": // somebody else was faster
			rec.Info = is.Info
			return nil
		default:
			if is.isOpen() {
				rec.Owner = is.Node
			}
			return nil
		}
	}
}

// done takes a run out of the queue, or keeps it for the loss of its node.
func (q *queue) done(ctx context.Context, rec *queueRecord, rev uint64) error {
	end := queueRecord{Version: 1, ID: rec.ID, State: queueDone}
	switch {
	case rec.Info.State == spool.StateClosed:
		end.Info = rec.Info
	case rec.Owner != "" && mayRestart(rec.Info.Labels):
		end = *rec
		end.State = queueKept
	}
	if err := q.leave(ctx, &end, rev); err != nil || end.State != queueKept {
		return err
	}
	// It may have ended before it was kept.
	is, _, err := q.facts.run(ctx, rec.ID)
	if err == nil && is.State == runClosed && is.Next == "" {
		return q.ended(ctx, rec.ID)
	}
	return nil
}

// leave writes that a run waits no more.
func (q *queue) leave(ctx context.Context, rec *queueRecord, rev uint64) error {
	keep := keepDone
	if rec.State == queueKept {
		keep = 0
	}
	rec.Nonce = newNonce()
	now, err := q.facts.Put(ctx, Fact{Key: queuePrefix + string(rec.ID), Data: encode(rec)}, rev, keep)
	switch {
	case err == nil:
		q.saw(rec, now)
	case errors.Is(err, ErrConflict):
		is, now, err := q.get(ctx, rec.ID)
		if err == nil {
			q.saw(&is, now)
		}
	default:
		return err
	}
	return nil
}

// cancel takes a run out of the queue that nobody has started. The error is errClaimed
// if a node is about to, and nil with false if one did.
func (q *queue) cancel(ctx context.Context, id spool.RunID) (canceled bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, q.owner.patience)
	defer cancel()
	_, err = q.facts.open(ctx)
	if err != nil {
		return false, fmt.Errorf("cancel run %s: %w", id, err)
	}
	rec, rev, err := q.get(ctx, id)
	if err != nil {
		return false, fmt.Errorf("cancel run %s: %w", id, err)
	}
	if rec.State != queueWaiting {
		q.saw(&rec, rev)
		return false, nil
	}
	if err := q.settle(ctx, &rec, "it was canceled before it started"); err != nil {
		return false, fmt.Errorf("cancel run %s: %w", id, err)
	}
	return rec.Info.State == spool.StateClosed, q.done(ctx, &rec, rev)
}
