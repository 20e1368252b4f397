package cluster

import (
	"context"
	"crypto/rand"
	"encoding/base32"
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

// Archive has the logs of finished runs, also of nodes that are gone. A run that it
// does not have is [spool.ErrNotFound].
type Archive interface {
	Stat(ctx context.Context, id spool.RunID) (spool.Info, error)
	Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error)
	Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error]
	Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error)
}

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
	facts   Facts
	members *members
	peers   *peers
	archive Archive // nil without one

	mu     sync.Mutex
	owners map[spool.RunID]string // an owner never changes
	closed bool
}

var _ Backend = (*Router)(nil)

// idText has no characters that look alike.
var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// newID returns an id for a run.
func newID() spool.RunID {
	var b [10]byte
	rand.Read(b[:]) // never fails
	return spool.RunID(idText.EncodeToString(b[:]))
}

// LostError says that the node of a run was fenced and does not answer: nobody knows
// what became of the run.
type LostError struct {
	Run    spool.RunID
	Node   string
	Reason string
	info   spool.Info // what was known
}

func (e *LostError) Error() string {
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
	node, err = r.claimant(ctx, id)
	if err == nil || !errors.Is(err, ErrNoFact) && !errors.Is(err, ErrUndecided) {
		return node, false, err
	}
	node, err = r.ask(ctx, id)
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
	r.remember(id, rec.Node)
	return rec.Node, nil
}

// record reads the fact about a run.
func (r *Router) record(ctx context.Context, id spool.RunID) (runRecord, error) {
	fctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	var rec runRecord
	f, err := r.facts.Get(fctx, runPrefix+string(id))
	if err == nil {
		err = json.Unmarshal(f.Data, &rec)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return rec, err
}

// ask asks all other nodes for a run of which the store knows nothing: it was started
// past the cluster, or the store does not answer.
func (r *Router) ask(ctx context.Context, id spool.RunID) (string, error) {
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
			answers <- answer{n.Name, err}
		}()
	}
	var silent []string
	for range asked {
		a := <-answers
		if a.err == nil {
			return a.node, nil
		}
		if n, _ := r.members.get(a.node); !errors.Is(a.err, spool.ErrNotFound) && n.holds() {
			silent = append(silent, a.node)
		}
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if len(silent) > 0 {
		return "", fmt.Errorf("run %s: the nodes %v, which may have it, do not answer", id, silent)
	}
	return "", fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
}

// at calls do with the backend of the node that has a run. do may be called again
// after a connection was lost.
func (r *Router) at(ctx context.Context, id spool.RunID, do func(Backend) error) error {
	for again := false; ; again = true {
		if r.isClosed() {
			return spool.ErrClosed
		}
		node, cached, err := r.find(ctx, id)
		if err != nil {
			return err
		}
		err = r.on(ctx, node, id, patience, do)
		if cached && !again && errors.Is(err, spool.ErrNotFound) {
			r.forget(id) // the run was removed; perhaps another has its id
			continue
		}
		return err
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
		_, changed := r.members.all()
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
		if lost := r.lost(ctx, node, id); lost != nil {
			return lost
		}
		if patience > 0 && time.Since(began) > patience {
			return fmt.Errorf("node %s, which has run %s, does not answer: %w", node, id, err)
		}
		t := time.NewTimer(retryEvery)
		select {
		case <-t.C:
		case <-changed:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// lost returns a [*LostError] if the node of a run was fenced after the run was
// claimed, or left.
func (r *Router) lost(ctx context.Context, node string, id spool.RunID) error {
	n, ok := r.members.get(node)
	if !ok || n.holds() {
		return nil
	}
	lost := &LostError{Run: id, Node: node, Reason: n.Reason}
	if n.State == nodeGone {
		lost.Reason = "it left the cluster"
	}
	if id == "" {
		return lost
	}
	rec, err := r.record(ctx, id)
	switch {
	case errors.Is(err, ErrNoFact): // it was never in the store
	case err != nil:
		return nil // not now
	case rec.isOpen() && n.State == nodeLost && !n.isFenced(rec.Epoch):
		return nil
	case rec.State == runClaimed:
		lost.Reason += "; the run was claimed, and its start was not confirmed"
	}
	lost.info = rec.Info
	return lost
}

// Start implements [spool.Backend]. It has the run started on a node that it chooses.
func (r *Router) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if r.isClosed() {
		return spool.Info{}, spool.ErrClosed
	}
	known := spec.ID != ""
	if !known {
		spec.ID = newID()
	} else if spec.ID.Check() == nil {
		// Who has it starts nothing new. Without a fact nobody claimed it, and nodes
		// that do not answer need not be asked.
		if node, err := r.claimant(ctx, spec.ID); err == nil {
			return r.startAt(ctx, node, spec)
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
	if lost := (*LostError)(nil); errors.As(err, &lost) && lost.info.ID != "" {
		i := lost.info
		if len(i.Argv) != len(spec.Argv) || i.Engine != cmpEngine(spec.Engine) {
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

func cmpEngine(name string) string {
	if name == "" {
		return spool.EngineProcess
	}
	return name
}

func isNameTaken(err error) bool {
	var se *spool.StartError
	return errors.As(err, &se) && se.Reason == "name_taken"
}

// Stat implements [spool.Backend].
func (r *Router) Stat(ctx context.Context, id spool.RunID) (info spool.Info, err error) {
	node := ""
	err = r.at(ctx, id, func(b Backend) (err error) {
		node = r.nameOf(b, id)
		info, err = b.Stat(ctx, id)
		return err
	})
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		if archived, err := r.archived(ctx, id); err == nil {
			return archived, nil
		}
		return lost.describe(), nil
	}
	info.Node = node
	return info, err
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

// archived describes a run that is in the archive.
func (r *Router) archived(ctx context.Context, id spool.RunID) (spool.Info, error) {
	if r.archive == nil {
		return spool.Info{}, spool.ErrNotFound
	}
	return r.archive.Stat(ctx, id)
}

// Read implements [spool.Backend]. When the node is lost the page carries the failure.
func (r *Router) Read(ctx context.Context, id spool.RunID, q spool.Query) (page spool.Page, err error) {
	node := ""
	err = r.at(ctx, id, func(b Backend) (err error) {
		node = r.nameOf(b, id)
		page, err = b.Read(ctx, id, q)
		if err == nil && page.Failure != "" && node != r.self {
			return &client.DisconnectedError{Err: errors.New(page.Failure)}
		}
		return err
	})
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		if _, err := r.archived(ctx, id); err == nil {
			return r.archive.Read(ctx, id, q)
		}
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
		lost := (*LostError)(nil)
		switch {
		case left || err == nil:
		case errors.As(err, &lost):
			r.followLost(ctx, lost, after, yield)
		default:
			yield(spool.Event{}, err)
		}
	}
}

// following is at for a reader: it waits for its node as long as nobody knows that the
// node is lost.
func (r *Router) following(ctx context.Context, id spool.RunID, do func(Backend) error) error {
	if r.isClosed() {
		return spool.ErrClosed
	}
	if _, err := r.Stat(ctx, id); err != nil { // an unknown run, or a cached owner that has it no more
		return err
	}
	node, _, err := r.find(ctx, id)
	if err != nil {
		return err
	}
	return r.on(ctx, node, id, 0, do)
}

// followLost goes on with the log of a run whose node is lost.
func (r *Router) followLost(ctx context.Context, lost *LostError, after spool.Seq, yield func(spool.Event, error) bool) {
	if _, err := r.archived(ctx, lost.Run); err == nil {
		for e, err := range r.archive.Follow(ctx, lost.Run, after) {
			if !yield(e, err) {
				return
			}
		}
		return
	}
	failed := spool.Outcome{Kind: spool.Unknown, Reason: lost.Error()}.Event()
	failed.Run, failed.Time = lost.Run, time.Now()
	if yield(failed, nil) {
		yield(spool.Event{Run: lost.Run, Time: failed.Time, Kind: spool.KindClosed}, nil)
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
		if !left && err != nil {
			yield(nil, err)
		}
	}
}

// Send implements [spool.Backend].
func (r *Router) Send(ctx context.Context, id spool.RunID, in spool.Input) (receipt spool.Receipt, err error) {
	if in.ID == "" {
		in.ID = string(newID()) // so that it is applied once
	}
	err = r.at(ctx, id, func(b Backend) (err error) {
		receipt, err = b.Send(ctx, id, in)
		return err
	})
	return receipt, err
}

// Control implements [spool.Backend].
func (r *Router) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	return r.at(ctx, id, func(b Backend) error { return b.Control(ctx, id, c) })
}

// Blob implements [spool.Backend].
func (r *Router) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (blob io.ReadCloser, err error) {
	err = r.at(ctx, id, func(b Backend) (err error) {
		blob, err = b.Blob(ctx, id, d)
		return err
	})
	if errors.Is(err, spool.ErrLost) && r.archive != nil {
		return r.archive.Blob(ctx, id, d)
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
