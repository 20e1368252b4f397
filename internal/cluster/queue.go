package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Labels of a spec that waits for its turn.
const (
	// LabelPool has a run wait in the queue until a node of this pool has room.
	LabelPool = "queue.pool"
	// LabelPriority is a whole number: of the runs of one subject that wait, that
	// with the highest starts first. Zero without it.
	LabelPriority = "queue.priority"

	// labelPool is the label of a node that names its pools, separated by commas.
	labelPool = "pool"
)

// DefaultPool is the pool of nodes that name none.
const DefaultPool = "default"

// Limits of the queue.
const (
	// DefaultQueue is how many runs wait at most.
	DefaultQueue = 100_000
	// MaxPriority is the highest priority; the lowest is its negative.
	MaxPriority = 1000
	// maxQueuedSpec bounds the JSON of a spec that waits.
	maxQueuedSpec = 512 << 10
)

// queuePrefix begins the keys of facts about runs that wait.
const queuePrefix = "queue."

// queueState is how far the fact about a run that waits is.
type queueState string

// The states of a run in the queue.
const (
	queueWaiting queueState = "waiting"
	queueKept    queueState = "kept" // it was started, and may be started again
	queueDone    queueState = "done" // its own fact says what became of it
)

// keepDone is how long the store knows that a run has left the queue.
const keepDone = 10 * time.Minute

// queueRecord is the fact about a run that waits.
type queueRecord struct {
	Version  int         `json:"v"`
	ID       spool.RunID `json:"id"`
	State    queueState  `json:"state"`
	Pool     string      `json:"pool,omitempty"`
	Priority int         `json:"priority,omitempty"`
	Node     string      `json:"node,omitempty"`         // on which it must start
	Engine   string      `json:"engine,omitempty"`       // that its node must have
	Memory   int64       `json:"memory_bytes,omitempty"` // that its node must have
	Owner    string      `json:"owner,omitempty"`        // the node that started it, if it is kept
	Nonce    string      `json:"nonce"`
	Info     spool.Info  `json:"info"`           // what others are told
	Spec     []byte      `json:"spec,omitempty"` // sealed: it has values of variables
}

// waiting is a run in the queue, as this node knows it.
type waiting struct {
	id       spool.RunID
	rev      uint64
	pool     string
	priority int
	node     string
	engine   string
	memory   int64
	owner    string // the node that started it, if it is kept
	info     spool.Info
	seen     time.Time // when this node learned of it
	retry    time.Time // when this node tries it again
	tries    int
	served   bool // it is counted for its turn
	rank     int  // how many other nodes come before this one, when this one first looked
	ranked   bool
}

// turn is whose turn it is: fairness is between these.
func (w *waiting) turn() turn { return turn{w.pool, w.info.Labels[record.LabelSubject]} }

// queue is what this node knows about the runs that wait. Each node with room takes
// from it what it may start, and claims it like any other start: of two nodes one can.
type queue struct {
	facts    *store
	outbox   *outbox
	key      Key
	owner    *Owner
	members  *members
	self     string
	slots    int
	limit    int
	keep     time.Duration
	interval time.Duration // between two looks at the whole queue, in a small cluster
	every    func(time.Duration) time.Duration
	log      *slog.Logger

	mu      sync.Mutex
	waiting map[spool.RunID]*waiting
	kept    map[spool.RunID]*waiting // those that were started, and may be started again
	gone    map[spool.RunID]departed // those that left since the last look at the whole queue
	order   order
	taking  map[spool.RunID]bool
	changed chan struct{} // closed and replaced when a run comes or goes
	loaded  chan struct{} // closed when the whole queue was read once
	news    chan struct{} // has room for one; filled when there may be something to take
}

// departed is a run that left the queue.
type departed struct {
	rev  uint64
	info spool.Info // if it was never started
}

func newQueue(o *Options, facts *store, box *outbox, owner *Owner, m *members) *queue {
	q := &queue{
		facts: facts, outbox: box, key: o.Key, owner: owner, members: m, self: o.Name, slots: o.Slots, limit: o.Queue, keep: o.Keep,
		interval: o.Timing.TTL, log: o.Log, waiting: make(map[spool.RunID]*waiting), kept: make(map[spool.RunID]*waiting), gone: make(map[spool.RunID]departed),
		taking: make(map[spool.RunID]bool), changed: make(chan struct{}), loaded: make(chan struct{}), news: make(chan struct{}, 1),
	}
	q.order = order{served: make(map[turn]uint64), lines: make(map[line][]*waiting)}
	return q
}

// poolsOf returns the pools of a node with these labels.
func poolsOf(labels map[string]string) []string {
	if labels[labelPool] == "" {
		return []string{DefaultPool}
	}
	return strings.Split(labels[labelPool], ",")
}

// isQueued reports whether a spec asks for the queue.
func isQueued(spec *spool.Spec) bool {
	_, ok := spec.Labels[LabelPool]
	return ok
}

// queuedError says that a run waits.
type queuedError struct{ info spool.Info }

func (e *queuedError) Error() string {
	return fmt.Sprintf("run %s waits in the queue of the pool %s", e.info.ID, e.info.Labels[LabelPool])
}

// Is makes it a [spool.ErrBusy]: later it may work.
func (e *queuedError) Is(target error) bool { return target == spool.ErrBusy }

// wake has the node look for something to take.
func (q *queue) wake() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// watch keeps the queue current until stop is called.
func (q *queue) watch() (stop func(), err error) {
	return q.facts.Watch(queuePrefix, func(f Fact) {
		var rec queueRecord
		if json.Unmarshal(f.Data, &rec) == nil {
			q.saw(&rec, f.Rev)
		}
	})
}

// saw takes a record.
func (q *queue) saw(rec *queueRecord, rev uint64) {
	q.note(rec, rev)
	if rec.State == queueDone {
		q.outbox.drop(rec.ID)
	}
}

// note notes what a record says.
func (q *queue) note(rec *queueRecord, rev uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.waiting[rec.ID]
	if kept := q.kept[rec.ID]; old != nil && rev <= old.rev || kept != nil && rev <= kept.rev || rev <= q.gone[rec.ID].rev {
		return
	}
	w := &waiting{id: rec.ID, rev: rev, pool: rec.Pool, priority: rec.Priority, node: rec.Node, engine: rec.Engine, memory: rec.Memory, owner: rec.Owner, info: rec.Info, seen: time.Now()}
	delete(q.kept, rec.ID)
	if rec.State == queueKept {
		q.kept[rec.ID] = w
	}
	if rec.State != queueWaiting {
		if old != nil && !old.served && rec.Info.State != spool.StateClosed {
			q.order.served[old.turn()]++
		}
		q.gone[rec.ID] = departed{rev: rev}
		if rec.Info.State == spool.StateClosed {
			q.gone[rec.ID] = departed{rev, rec.Info}
		}
		q.drop(rec.ID)
		return
	}
	w.info.State = spool.StateQueued
	if old != nil {
		q.order.remove(old)
	}
	q.order.add(w)
	q.waiting[rec.ID] = w
	q.tell()
}

// drop forgets a run that waits no more. The caller holds q.mu.
func (q *queue) drop(id spool.RunID) {
	if w := q.waiting[id]; w != nil {
		q.order.remove(w)
		delete(q.waiting, id)
		q.tell()
	}
}

// tell tells of a change. The caller holds q.mu.
func (q *queue) tell() {
	close(q.changed)
	q.changed = make(chan struct{})
	q.wake()
}

// load reads the whole queue: a watch may miss something.
func (q *queue) load(ctx context.Context) error {
	sent := q.outbox.before(time.Now())
	q.mu.Lock()
	before := make(map[spool.RunID]uint64, len(q.waiting))
	for _, all := range []map[spool.RunID]*waiting{q.waiting, q.kept} {
		for id, w := range all {
			before[id] = w.rev
		}
	}
	generation := q.facts.generation()
	left := q.gone
	q.gone = make(map[spool.RunID]departed)
	for id, d := range left { // what is read now may be older than that
		q.gone[id] = d
	}
	q.mu.Unlock()
	there := make(map[spool.RunID]bool)
	for f, err := range q.facts.All(ctx, queuePrefix) {
		if err != nil {
			return fmt.Errorf("read the queue: %w", err)
		}
		var rec queueRecord
		if json.Unmarshal(f.Data, &rec) == nil {
			q.saw(&rec, f.Rev)
			delete(before, rec.ID)
			there[rec.ID] = true
		}
	}
	if q.facts.identity.asserted() == generation && q.facts.generation() == generation { // else it may have forgotten them
		for _, id := range sent {
			if !there[id] {
				q.outbox.drop(id)
			}
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, rev := range before {
		if w := q.waiting[id]; w != nil && w.rev == rev {
			q.drop(id) // the store has it no more
		}
		if w := q.kept[id]; w != nil && w.rev == rev {
			delete(q.kept, id)
		}
	}
	for id, d := range left {
		if q.gone[id].rev == d.rev {
			delete(q.gone, id)
		}
	}
	select {
	case <-q.loaded:
	default:
		close(q.loaded)
	}
	return nil
}

// refresh reads the whole queue now and then.
func (q *queue) refresh(ctx context.Context) {
	for ctx.Err() == nil {
		lctx, cancel := context.WithTimeout(ctx, q.interval)
		err := q.load(lctx)
		cancel()
		if err != nil {
			pause(ctx, retryEvery, nil)
			continue
		}
		pause(ctx, q.every(q.interval), nil)
	}
}

// submit has a run wait for a node with room. The same id and spec is the same run.
func (q *queue) submit(ctx context.Context, spec *spool.Spec, node string) (spool.Info, error) {
	if err := checkRestart(spec); err != nil {
		return spool.Info{}, &spool.StartError{Reason: "invalid", Err: err}
	}
	rec, err := q.record(spec, node)
	if err != nil {
		return spool.Info{}, err
	}
	q.mu.Lock()
	full := len(q.waiting) >= q.limit && q.waiting[spec.ID] == nil
	q.mu.Unlock()
	if full {
		return spool.Info{}, &spool.StartError{Reason: "limit", Err: fmt.Errorf("%w: %d runs wait in the queue", spool.ErrBusy, q.limit), Hint: "wait until some have started"}
	}
	parent := ctx
	ctx, cancel := context.WithTimeout(ctx, q.owner.patience)
	defer cancel()
	if _, err := q.facts.open(ctx); err != nil {
		return spool.Info{}, q.owner.noQuorum(parent, spec.ID, err)
	}
	expect := uint64(0)
	for {
		rec.Nonce = newNonce()
		f := Fact{Key: queuePrefix + string(spec.ID), Data: encode(&rec)}
		rev, err := q.facts.Put(ctx, f, expect, 0)
		if err == nil {
			if err := q.outbox.put(&rec); err != nil {
				q.log.Warn("a run waits in the queue, and only the store has it", "run", rec.ID, "err", err)
			}
			q.saw(&rec, rev)
			return rec.Info, nil
		}
		if !errors.Is(err, ErrConflict) {
			return spool.Info{}, q.owner.noQuorum(parent, spec.ID, fmt.Errorf("put it in the queue: %w", err))
		}
		var is queueRecord
		now, err := q.facts.Get(ctx, f.Key)
		if err == nil {
			err = json.Unmarshal(now.Data, &is)
		}
		switch {
		case errors.Is(err, ErrNoFact):
			expect = 0
		case err != nil:
			return spool.Info{}, q.owner.noQuorum(parent, spec.ID, err)
		case is.State == queueWaiting:
			q.saw(&is, now.Rev)
			return is.Info, q.same(&is, spec)
		default: // it left, and nobody has started it
			expect = now.Rev
		}
	}
}

// same returns an error if a run that waits is not what a spec says.
func (q *queue) same(rec *queueRecord, spec *spool.Spec) error {
	is, err := q.unseal(rec)
	if err != nil {
		return err
	}
	if string(encode(&is)) != string(encode(spec)) {
		return fmt.Errorf("start run %s: it waits in the queue: %w", spec.ID, spool.ErrExists)
	}
	return nil
}

// record returns the fact about a run that is to wait.
func (q *queue) record(spec *spool.Spec, node string) (queueRecord, error) {
	invalid := func(format string, args ...any) (queueRecord, error) {
		return queueRecord{}, &spool.StartError{Reason: "invalid", Err: fmt.Errorf("%w: "+format, append([]any{spool.ErrInvalid}, args...)...)}
	}
	if err := spec.ID.Check(); err != nil {
		return invalid("%w", err)
	}
	pool := spec.Labels[LabelPool]
	if CheckNode(pool) != nil {
		return invalid("the pool %.100q: its name has up to %d of a-z, 0-9 and -", pool, maxNodeName)
	}
	priority := 0
	if text := spec.Labels[LabelPriority]; text != "" {
		var err error
		if priority, err = strconv.Atoi(text); err != nil || priority < -MaxPriority || priority > MaxPriority {
			return invalid("the priority %.100q: use a whole number from %d to %d", text, -MaxPriority, MaxPriority)
		}
	}
	plain := encode(spec)
	if len(plain) > maxQueuedSpec {
		return invalid("a spec of %d bytes; one that waits has at most %d", len(plain), maxQueuedSpec)
	}
	sealed, err := q.key.seal(plain, string(spec.ID))
	if err != nil {
		return queueRecord{}, fmt.Errorf("seal run %s for the queue: %w", spec.ID, err)
	}
	info := spool.Info{ID: spec.ID, Name: spec.Name, Engine: spec.Engine, Labels: spec.Labels, Argv: spec.Argv, Cwd: spec.Cwd, TTY: spec.TTY != nil, Created: q.facts.clock().UTC().Round(0)}
	if info.Engine == "" {
		info.Engine = spool.EngineProcess
	}
	info = recordInfo(&info)
	info.State = spool.StateQueued
	return queueRecord{Version: 1, ID: spec.ID, State: queueWaiting, Pool: pool, Priority: priority, Node: node, Engine: engineOf(spec), Memory: spec.Limits.MemoryBytes, Info: info, Spec: sealed}, nil
}

// unseal returns the spec of a run that waits.
func (q *queue) unseal(rec *queueRecord) (spool.Spec, error) {
	var spec spool.Spec
	plain, err := q.key.unseal(rec.Spec, string(rec.ID))
	if err == nil {
		err = json.Unmarshal(plain, &spec)
	}
	if err != nil {
		return spec, fmt.Errorf("read run %s in the queue: %w", rec.ID, err)
	}
	return spec, nil
}

// look describes a run that waits. left says that it was in the queue a moment ago.
func (q *queue) look(ctx context.Context, id spool.RunID) (info spool.Info, waits, left bool) {
	q.mu.Lock()
	if w := q.waiting[id]; w != nil {
		info = w.info
		q.mu.Unlock()
		return info, true, false
	}
	_, left = q.gone[id]
	q.mu.Unlock()
	if left {
		return info, false, true
	}
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	rec, rev, err := q.get(ctx, id)
	if err != nil {
		return info, false, false
	}
	q.saw(&rec, rev)
	return rec.Info, rec.State == queueWaiting, rec.State != queueWaiting
}

// get reads the fact about a run.
func (q *queue) get(ctx context.Context, id spool.RunID) (rec queueRecord, rev uint64, err error) {
	f, err := q.facts.Get(ctx, queuePrefix+string(id))
	if err == nil {
		err = json.Unmarshal(f.Data, &rec)
	}
	return rec, f.Rev, err
}

// await waits until a run may have left the queue.
func (q *queue) await(ctx context.Context, id spool.RunID) {
	q.mu.Lock()
	_, waits := q.waiting[id]
	changed := q.changed
	q.mu.Unlock()
	if !waits {
		pause(ctx, retryEvery, nil)
		return
	}
	pause(ctx, q.interval, changed)
}

// all describes the runs that wait and that a filter selects, in its order. The
// channel is closed when one comes or goes.
func (q *queue) all(ctx context.Context, f *spool.Filter) ([]spool.Info, <-chan struct{}, error) {
	select {
	case <-q.loaded:
	default:
		pause(ctx, min(findTimeout, q.owner.patience), q.loaded)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.loaded:
	default:
		return nil, q.changed, fmt.Errorf("runs that wait in the queue are missing: %w", ErrUndecided)
	}
	var infos []spool.Info
	for _, w := range q.waiting {
		if f.Match(&w.info) {
			infos = append(infos, w.info)
		}
	}
	slices.SortFunc(infos, func(a, b spool.Info) int { return f.Compare(&a, &b) })
	return infos, q.changed, nil
}

// left returns the description of a run that left the queue and was never started.
func (q *queue) left(id spool.RunID) (spool.Info, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	info := q.gone[id].info
	return info, info.State == spool.StateClosed
}
