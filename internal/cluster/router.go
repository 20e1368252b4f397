package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/record"
)

// Times of the router.
const (
	// patience is how long a request waits for a node that does not answer and was
	// not fenced.
	patience = 5 * time.Second
	// findTimeout bounds the question who has a run.
	findTimeout = 3 * time.Second
	// retryEvery is how often a node that does not answer is asked again.
	retryEvery = 100 * time.Millisecond
	// maxCached is how many owners of runs are remembered.
	maxCached = 100_000
)

// Router is the backend of the whole cluster, on any node: it asks the node that has a
// run.
type Router struct {
	self    string
	owner   *Owner
	facts   *store
	members *members
	crowd   *crowd
	peers   *peers
	mirrors *peers     // to the copies of other nodes
	copies  copyReader // of this node
	archive Archive    // nil without one
	queue   *queue
	absent  *absent

	mu     sync.Mutex
	owners map[spool.RunID]string // an owner never changes
	closed bool
}

var _ Backend = (*Router)(nil)

// remember notes who has a run.
func (r *Router) remember(id spool.RunID, node string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.owners) >= maxCached {
		for other := range r.owners { // any
			delete(r.owners, other)
			break
		}
	}
	r.owners[id] = node
}

func (r *Router) forget(id spool.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.owners, id)
}

// isClosed reports whether the router was closed.
func (r *Router) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// find returns which node has a run. Cached says that it is from memory.
func (r *Router) find(ctx context.Context, id spool.RunID) (node string, cached bool, err error) {
	if id.Check() != nil {
		return "", false, fmt.Errorf("run %.140q: %w", id, spool.ErrNotFound)
	}
	r.mu.Lock()
	node, cached = r.owners[id]
	r.mu.Unlock()
	if cached {
		return node, true, nil
	}
	for again := false; ; again = true {
		node, err = r.claimant(ctx, id)
		if err == nil || !errors.Is(err, ErrNoFact) && !errors.Is(err, ErrUndecided) {
			return node, false, err
		}
		if errors.Is(err, ErrUndecided) {
			break
		}
		info, waits, left := r.queue.look(ctx, id)
		if waits {
			return "", false, &queuedError{info}
		}
		if !left || again { // else it was claimed meanwhile
			break
		}
	}
	meta, _, _ := r.facts.state() // a store that went back in time may have forgotten it
	node, err = r.ask(ctx, id, errors.Is(err, ErrNoFact) && !meta.Rebuilding)
	if err == nil {
		r.remember(id, node)
	}
	return node, false, err
}

// claimant returns which node has claimed a run. The error is [ErrNoFact] if none has.
func (r *Router) claimant(ctx context.Context, id spool.RunID) (string, error) {
	r.mu.Lock()
	node, cached := r.owners[id]
	r.mu.Unlock()
	if cached {
		return node, nil
	}
	if _, err := r.owner.Stat(ctx, id); err == nil {
		r.remember(id, r.self)
		return r.self, nil
	} else if !errors.Is(err, spool.ErrNotFound) {
		return "", err
	}
	rec, err := r.record(ctx, id)
	switch {
	case err != nil:
		return "", err
	case rec.State == runFailed:
		return "", ErrNoFact
	}
	if never := rec.never(); never != nil {
		return "", never
	}
	r.remember(id, rec.Node)
	return rec.Node, nil
}

// record reads the fact about a run.
func (r *Router) record(ctx context.Context, id spool.RunID) (runRecord, error) {
	fctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	rec, _, err := r.facts.run(fctx, id)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return rec, err
}

// ask asks all other nodes for a run of which the store knows nothing: it was started
// past the cluster, or the store does not answer. Unclaimed says that the store did:
// then a node that is lost need not have the run.
func (r *Router) ask(ctx context.Context, id spool.RunID, unclaimed bool) (string, error) {
	actx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	type answer struct {
		node string
		err  error
	}
	nodes, _ := r.members.all()
	answers := make(chan answer, len(nodes))
	asked := 0
	for _, n := range nodes {
		if n.Name == r.self || n.State == nodeGone {
			continue
		}
		asked++
		go func() {
			p, err := r.peers.get(actx, n.Name)
			if err == nil {
				_, err = p.Stat(actx, id)
			}
			if p != nil && isCut(err) { // the connection may be to a server that was replaced
				r.peers.drop(n.Name, p)
				if p, err = r.peers.get(actx, n.Name); err == nil {
					_, err = p.Stat(actx, id)
				}
			}
			answers <- answer{n.Name, err}
		}()
	}
	var silent []string
	for range asked {
		a := <-answers
		if a.err == nil {
			return a.node, nil
		}
		if n, _ := r.members.get(a.node); !errors.Is(a.err, spool.ErrNotFound) && (n.holds() || !unclaimed) {
			silent = append(silent, a.node)
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if len(silent) > 0 {
		return "", &unreachableError{fmt.Errorf("run %s: the nodes %v, which may have it, do not answer", id, silent)}
	}
	return "", fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
}

// at calls do with the backend of the node that has a run. do may be called again
// after a connection was lost.
func (r *Router) at(ctx context.Context, id spool.RunID, do func(Backend) error) error {
	for try := 0; ; try++ {
		if r.isClosed() {
			return spool.ErrClosed
		}
		node, cached, err := r.find(ctx, id)
		if err != nil {
			return err
		}
		err = r.on(ctx, node, id, patience, do)
		if cached && try == 0 && errors.Is(err, errElsewhere) {
			r.forget(id) // it was never started there
			continue
		}
		if try < 2 && errors.Is(err, spool.ErrNotFound) {
			// Perhaps it is about to start.
			info, waits, left := r.queue.look(ctx, id)
			if waits {
				return &queuedError{info}
			}
			if left || cached {
				r.forget(id) // or the run was removed, or never started; perhaps another has its id
				continue
			}
		}
		return r.withoutLog(ctx, id, err)
	}
}

// on calls do with the backend of a node, as often as its connection is lost, until
// the node was fenced. It gives up after some time, if that is not zero.
func (r *Router) on(ctx context.Context, node string, id spool.RunID, patience time.Duration, do func(Backend) error) error {
	if node == r.self {
		return do(r.owner)
	}
	began := time.Now()
	for {
		changed := r.members.changes()
		p, err := r.peers.get(ctx, node)
		if err == nil {
			began = time.Now()
			err = do(p)
			if err == nil || !isCut(err) {
				return err
			}
			r.peers.drop(node, p)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.isClosed() {
			return spool.ErrClosed
		}
		r.crowd.look(ctx, node)
		if lost := r.lost(ctx, node, id); lost != nil {
			return lost
		}
		if patience > 0 && time.Since(began) > patience {
			return fmt.Errorf("node %s, which has run %s, does not answer: %w", node, id, err)
		}
		pause(ctx, retryEvery, changed)
	}
}

// Stat implements [spool.Backend].
func (r *Router) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	info, _, err := r.look(ctx, id)
	return info, err
}

// look describes a run. The error cut says why its node was not asked, if it is described
// from the archive.
func (r *Router) look(ctx context.Context, id spool.RunID) (info spool.Info, cut, err error) {
	node := ""
	err = r.at(ctx, id, func(b Backend) (err error) {
		node = r.nameOf(b, id)
		info, err = b.Stat(ctx, id)
		return err
	})
	if err == nil {
		info.Node = node
		return info, nil, nil
	}
	if queued := (*queuedError)(nil); errors.As(err, &queued) {
		return queued.info, nil, nil
	}
	if never := (*neverError)(nil); errors.As(err, &never) {
		return never.info, nil, nil
	}
	if archived, ok := r.archived(ctx, id, err); ok {
		return archived, err, nil
	}
	if lost := withCopy(err); lost != nil {
		if info, err := r.statCopy(ctx, lost); err == nil {
			return info, nil, nil
		}
	}
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		return lost.describe(), nil, nil
	}
	return spool.Info{}, nil, err
}

// nameOf returns the node that has a run, after it was found.
func (r *Router) nameOf(b Backend, id spool.RunID) string {
	if b == Backend(r.owner) {
		return r.self
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owners[id]
}

// read reads from the node that has the run.
func (r *Router) read(ctx context.Context, id spool.RunID, q spool.Query) (page spool.Page, err error) {
	node := ""
	err = r.at(ctx, id, func(b Backend) (err error) {
		node = r.nameOf(b, id)
		page, err = b.Read(ctx, id, q)
		if err == nil && page.Failure != "" && node != r.self {
			return &client.DisconnectedError{Err: errors.New(page.Failure)}
		}
		return err
	})
	if archived, ok := r.archived(ctx, id, err); ok {
		page, err = r.archive.Read(ctx, id, q)
		page.Info.Node = archived.Node
		return page, err
	}
	if lost := withCopy(err); lost != nil {
		if page, err := r.readCopy(ctx, lost, q); err == nil {
			return page, nil
		}
	}
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		info := lost.describe()
		info.Last = q.After
		return spool.Page{Next: q.After, Info: info, Failure: lost.Error()}, nil
	}
	page.Info.Node = node
	return page, err
}

// Follow implements [spool.Backend]. If the node of the run is lost, the reader is told
// with events that are not in the log and have no seq.
func (r *Router) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		left := false
		err := r.following(ctx, id, func(b Backend) error {
			for e, err := range b.Follow(ctx, id, after) {
				if err != nil {
					return err
				}
				if e.Seq == 0 && b != Backend(r.owner) { // the end of the connection, not of the run
					return &client.DisconnectedError{Err: errors.New("the connection was lost")}
				}
				after = e.Seq
				if left = !yield(e, nil); left {
					return nil
				}
			}
			return nil
		})
		if left || err == nil {
			return
		}
		if never := (*neverError)(nil); errors.As(err, &never) {
			followNever(never, yield)
			return
		}
		if _, ok := r.archived(ctx, id, err); ok {
			r.archive.Follow(ctx, id, after)(yield)
			return
		}
		if lost := withCopy(err); lost != nil {
			r.followCopied(ctx, lost, after, yield)
			return
		}
		if lost := (*LostError)(nil); errors.As(err, &lost) {
			r.followLost(lost, yield)
			return
		}
		yield(spool.Event{}, err)
	}
}

// following is at for a reader: it waits for a run that is in the queue, and for its
// node as long as nobody knows that the node is lost.
func (r *Router) following(ctx context.Context, id spool.RunID, do func(Backend) error) error {
	for {
		if r.isClosed() {
			return spool.ErrClosed
		}
		_, cut, err := r.look(ctx, id)
		if cut != nil { // the archive has all of it
			return cut
		}
		if err != nil && !isCut(err) { // an unknown run, or a cached owner that has it no more
			return err
		}
		node, _, err := r.find(ctx, id)
		if err == nil {
			err = r.on(ctx, node, id, 0, do)
		}
		queued := (*queuedError)(nil)
		waits := errors.As(err, &queued)
		if errors.Is(err, spool.ErrNotFound) {
			_, waits, _ = r.queue.look(ctx, id) // its node is about to start it
		}
		if !waits {
			return r.withoutLog(ctx, id, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r.queue.await(ctx, id)
	}
}

// FollowRecords implements [record.Follower]: it passes on the records of another node
// as they are.
func (r *Router) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		left := false
		err := r.following(ctx, id, func(b Backend) error {
			for batch, err := range b.FollowRecords(ctx, id, after) {
				if err != nil {
					return err
				}
				if b != Backend(r.owner) {
					records, err := batch.Load()
					if err == nil {
						after, _, err = record.Last(records, after)
					}
					if err != nil {
						return err
					}
				}
				if left = !yield(batch, nil); left {
					return nil
				}
			}
			return nil
		})
		if left || err == nil {
			return
		}
		if _, ok := r.archived(ctx, id, err); ok {
			r.archive.FollowRecords(ctx, id, after)(yield)
			return
		}
		if lost := withCopy(err); lost != nil {
			left := false
			err = r.followCopy(ctx, lost, after, func(b *record.Batch) bool {
				left = !yield(b, nil)
				return !left
			})
			if left || err == nil {
				return
			}
		}
		yield(nil, err)
	}
}

// Send implements [spool.Backend].
func (r *Router) Send(ctx context.Context, id spool.RunID, in spool.Input) (receipt spool.Receipt, err error) {
	if in.ID == "" {
		in.ID = newNonce() // so that it is applied once
	}
	err = r.at(ctx, id, func(b Backend) (err error) {
		receipt, err = b.Send(ctx, id, in)
		return err
	})
	return receipt, err
}

// Blob implements [spool.Backend].
func (r *Router) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (blob io.ReadCloser, err error) {
	err = r.at(ctx, id, func(b Backend) (err error) {
		blob, err = b.Blob(ctx, id, d)
		return err
	})
	if _, ok := r.archived(ctx, id, err); ok {
		return r.archive.Blob(ctx, id, d)
	}
	if lost := withCopy(err); lost != nil {
		copyErr := r.atCopy(ctx, lost, patience, func(c copyReader) (err error) {
			blob, err = c.Blob(ctx, id, d)
			return err
		})
		if copyErr == nil {
			return blob, nil
		}
	}
	return blob, err
}

// Rename implements [spool.Renamer].
func (r *Router) Rename(ctx context.Context, id spool.RunID, name string) (info spool.Info, err error) {
	err = r.at(ctx, id, func(b Backend) (err error) {
		info, err = b.Rename(ctx, id, name)
		return err
	})
	return info, err
}

// Inspect implements [spool.Inspector].
func (r *Router) Inspect(ctx context.Context, id spool.RunID, question json.RawMessage) (answer json.RawMessage, err error) {
	err = r.at(ctx, id, func(b Backend) (err error) {
		answer, err = b.Inspect(ctx, id, question)
		return err
	})
	return answer, err
}

// Changes implements [spool.Workspaces].
func (r *Router) Changes(ctx context.Context, id spool.RunID, q spool.ChangeQuery) (page spool.ChangePage, err error) {
	err = r.at(ctx, id, func(b Backend) (err error) {
		page, err = b.Changes(ctx, id, q)
		return err
	})
	return page, err
}

// Apply implements [spool.Workspaces].
func (r *Router) Apply(ctx context.Context, id spool.RunID, paths []string, dry bool) (page spool.ChangePage, err error) {
	err = r.at(ctx, id, func(b Backend) (err error) {
		page, err = b.Apply(ctx, id, paths, dry)
		return err
	})
	return page, err
}

// Discard implements [spool.Workspaces].
func (r *Router) Discard(ctx context.Context, id spool.RunID) error {
	return r.at(ctx, id, func(b Backend) error { return b.Discard(ctx, id) })
}
