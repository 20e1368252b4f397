package keeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// Options configure a backend over the keepers of a state directory.
type Options struct {
	Dir    string
	Build  string  // which keeper takes new runs
	Keeper Command // starts one
	Host   host.Options
	// Limits are the defaults of the runs this backend starts.
	Limits spool.Limits
	// Inherit, if not nil, gives a spec what its engine would take from
	// this process.
	Inherit func(spec *spool.Spec) error
}

// Backend is the runs of a state directory, live and finished, whichever
// keeper they belong to. It is safe for concurrent use.
type Backend struct {
	opts  Options
	store *store.Store

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	links  map[string]*link // by owner
	mine   *link            // to the keeper of our build
	runs   map[spool.RunID]*mirror
	closed bool

	children []int // keepers that this process started
}

var _ spool.Backend = (*Backend)(nil)

// Open opens a state directory. It starts nothing.
func Open(o Options) (*Backend, error) {
	o.Host.Dir, o.Host.Engines = o.Dir, nil
	if err := host.Settle(o.Host); err != nil {
		return nil, err
	}
	s, err := store.Open(o.Dir, store.Options{})
	if err != nil {
		return nil, err
	}
	b := &Backend{opts: o, store: s, links: make(map[string]*link), runs: make(map[spool.RunID]*mirror)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close lets go of the directory and the keepers. The runs go on.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
	b.reap(nil)
	var errs []error
	for _, m := range b.runs {
		errs = append(errs, m.journal.Close())
	}
	return errors.Join(append(errs, b.store.Close())...)
}

// inherit gives a run the environment and the working directory that it would
// have if this process ran it.
func inherit(spec *spool.Spec) (err error) {
	if spec.EnvPolicy != nil { // else it inherits nothing
		env, err := environ.Make(spec.EnvPolicy, os.Environ(), spec.Env)
		if err != nil {
			return &spool.StartError{Reason: spool.StartInvalid, Err: err}
		}
		spec.EnvPolicy, spec.Env = nil, make(map[string]string, len(env))
		for _, kv := range env {
			k, v, _ := cutEnv(kv)
			spec.Env[k] = v
		}
	}
	if spec.Cwd == "" {
		if spec.Cwd, err = os.Getwd(); err != nil {
			return &spool.StartError{Reason: spool.StartBadCwd, Err: err}
		}
	}
	return nil
}

// Start implements [spool.Backend]. The environment is derived here: a keeper
// has that of whoever happened to start it.
func (b *Backend) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if b.isClosed() {
		return spool.Info{}, spool.ErrClosed
	}
	if b.opts.Inherit != nil {
		if err := b.opts.Inherit(&spec); err != nil {
			return spool.Info{}, err
		}
	}
	if spec.Engine != spool.EngineSandbox { // which has nothing of this process
		if err := inherit(&spec); err != nil {
			return spool.Info{}, err
		}
	}
	if spec.ID == "" {
		spec.ID = spool.RunID(host.NewID()) // so that asking again is harmless
	}
	spec.Limits = WithDefaults(spec.Limits, b.opts.Limits)
	for {
		l, err := b.current(ctx)
		if err != nil {
			return spool.Info{}, err
		}
		var info spool.Info
		first := l.expect(spec.ID)
		err = l.start(ctx, record.Start{Spec: spec, News: first != nil}, &info)
		m := b.prime(info, err)
		switch {
		case m != nil && first != nil && m.owner == l.owner && m.expect(): // else it is another's, who may be dead
			l.deliver(first, m)
			return info, nil
		case m != nil:
			m.want(0)
		}
		l.forget(spec.ID, first)
		if errors.Is(err, rpc.ErrConnClosed) && ctx.Err() == nil && b.ctx.Err() == nil {
			continue // it was about to leave, or died
		}
		return info, err
	}
}

func cutEnv(kv string) (k, v string, ok bool) {
	for i := 1; i < len(kv); i++ { // a name may begin with =
		if kv[i] == '=' {
			return kv[:i], kv[i+1:], true
		}
	}
	return kv, "", false
}

// WithDefaults returns limits whose zero fields are those of d.
func WithDefaults(l, d spool.Limits) spool.Limits {
	return spool.Limits{
		Wall: cmp.Or(l.Wall, d.Wall), Idle: cmp.Or(l.Idle, d.Idle), Grace: cmp.Or(l.Grace, d.Grace),
		OutputBytes: cmp.Or(l.OutputBytes, d.OutputBytes), OutputPolicy: cmp.Or(l.OutputPolicy, d.OutputPolicy),
		Pids: cmp.Or(l.Pids, d.Pids),
	}
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// run returns the mirror of a run.
func (b *Backend) run(ctx context.Context, id spool.RunID) (*mirror, error) {
	b.mu.Lock()
	m, ok := b.runs[id]
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, spool.ErrClosed
	}
	if ok {
		m.touch()
		return m, nil
	}
	j, err := b.store.Open(id)
	if errors.Is(err, fs.ErrNotExist) && b.isStarting(ctx, id) {
		j, err = b.store.Open(id)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, spool.ErrInvalid) {
		return nil, fmt.Errorf("run %.140s: %w", id, spool.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return b.adopt(newMirror(b, j.Info(), j))
}

// isStarting asks the keepers for a run that has no file, and reports whether
// it has one now: a run is listed as soon as it is being started, and whoever
// found it there must not be told that it does not exist.
func (b *Backend) isStarting(ctx context.Context, id spool.RunID) bool {
	found := false
	// A keeper answers once the start is over; what it does not know is an error.
	_, _ = b.toAll(ctx, methodStat, runproto.RunParams{Run: id}, func(json.RawMessage) { found = true })
	return found
}

// prime returns the mirror of a run that was just started, or nil if that
// failed or it is not new at all.
func (b *Backend) prime(info spool.Info, err error) *mirror {
	if err != nil || info.Last > 0 {
		return nil
	}
	b.mu.Lock()
	_, known := b.runs[info.ID]
	b.mu.Unlock()
	if known {
		return nil
	}
	j, err := b.store.OpenNew(info)
	if err != nil {
		return nil // whoever reads it is told
	}
	m := newMirror(b, info, j)
	if other, err := b.adopt(m); err != nil || other != m {
		return nil
	}
	return m
}

func (b *Backend) adopt(m *mirror) (*mirror, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(spool.ErrClosed, m.journal.Close())
	}
	if other, ok := b.runs[m.id]; ok { // somebody was faster
		return other, m.journal.Close()
	}
	b.runs[m.id] = m
	b.trim()
	return m, nil
}

// keptMirrors is how many finished runs stay open for reading.
const keptMirrors = 256

// trim forgets the finished runs that were used longest ago. Callers hold b.mu.
func (b *Backend) trim() {
	if len(b.runs) <= keptMirrors {
		return
	}
	var done []*mirror
	for _, m := range b.runs {
		if m.idle() {
			done = append(done, m)
		}
	}
	if len(done) <= keptMirrors {
		return
	}
	slices.SortFunc(done, func(a, b *mirror) int { return a.lastUse().Compare(b.lastUse()) })
	for _, m := range done[:len(done)-keptMirrors/2] {
		delete(b.runs, m.id)
		_ = m.journal.Close() // open for reading: nothing is lost
	}
}

// Stat implements [spool.Backend].
func (b *Backend) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	m, err := b.run(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	return m.stat(ctx)
}

// List implements [spool.Backend].
func (b *Backend) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if err := f.Check(); err != nil {
			yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			return
		}
		if b.isClosed() {
			yield(spool.Info{}, spool.ErrClosed)
			return
		}
		// The keepers know what is alive now: that may be a run which was not
		// written to for long, or is not on disk yet.
		all, err := b.live(ctx)
		if err != nil {
			yield(spool.Info{}, err)
			return
		}
		known := make(map[spool.RunID]bool, len(all))
		for _, info := range all {
			known[info.ID] = true
		}
		stored := b.store.ListSince(f.Since)
		if f.Live || f.State != "" && f.State != spool.StateClosed {
			stored = func(func(spool.Info, error) bool) {}
		}
		for info, err := range stored {
			switch {
			case ctx.Err() != nil:
				yield(spool.Info{}, context.Cause(ctx))
				return
			case err != nil && info.ID == "": // not of one run
				yield(spool.Info{}, err)
				return
			case err != nil:
				if f.After == "" && !yield(spool.Info{}, err) {
					return
				}
			case !known[info.ID]:
				all = append(all, info)
			}
		}
		slices.SortFunc(all, func(a, b spool.Info) int { return f.Compare(&a, &b) })
		// Files may say of a run that it lives which ended since they were
		// read: what does not change is matched first, and then its state.
		constant := f
		constant.Live, constant.State, constant.Since = false, "", time.Time{}
		n := 0
		for _, info := range all {
			if !constant.Match(&info) {
				continue
			}
			if info.State != spool.StateClosed && !known[info.ID] {
				if now, err := b.Stat(ctx, info.ID); err == nil {
					info = now
				}
			}
			if !f.Match(&info) {
				continue
			}
			if !yield(info, nil) {
				return
			}
			if n++; n == f.Limit {
				return
			}
		}
	}
}

// askAll is how often keepers that leave meanwhile are looked for again.
const askAll = 5

// live asks the keepers what they have. The runs of one that died are settled
// first: nobody else could say that they live, and their files say when they
// were settled.
func (b *Backend) live(ctx context.Context) ([]spool.Info, error) {
	for range askAll {
		if err := host.Settle(b.opts.Host); err != nil {
			return nil, err
		}
		var all []spool.Info
		gone, err := b.toAll(ctx, methodLive, struct{}{}, func(raw json.RawMessage) {
			var r liveResult
			if json.Unmarshal(raw, &r) == nil {
				all = append(all, r.Runs...)
			}
		})
		if err != nil || gone == 0 {
			return all, err
		}
		select {
		case <-time.After(askAgainIn):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, fmt.Errorf("ask the keepers of %s: one of them does not answer", b.opts.Dir)
}

// Read implements [spool.Backend].
func (b *Backend) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	m, err := b.run(ctx, id)
	if err != nil {
		return spool.Page{}, err
	}
	return m.read(ctx, q)
}

// FollowRecords implements [record.Follower].
func (b *Backend) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq, head int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		m, err := b.run(ctx, id)
		if err != nil {
			yield(nil, err)
			return
		}
		m.enter()
		defer m.leave()
		record.Pages(after, head, func(dst []byte, q spool.Query) ([]byte, spool.Page, error) {
			return m.readRecords(ctx, q, dst)
		})(yield)
	}
}

// Follow implements [spool.Backend].
func (b *Backend) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		m, err := b.run(ctx, id)
		if err != nil {
			yield(spool.Event{}, err)
			return
		}
		m.follow(ctx, after, yield)
	}
}

// Send implements [spool.Backend].
func (b *Backend) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	if in.ID == "" {
		in.ID = host.NewID()
	}
	var receipt spool.Receipt
	err := b.ask(ctx, id, methodSend, runproto.SendParams{Run: id, Input: in}, &receipt)
	if errors.Is(err, spool.ErrEnded) {
		err = fmt.Errorf("run %s: %w", id, spool.ErrInputClosed)
	}
	return receipt, err
}

// Control implements [spool.Backend].
func (b *Backend) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	err := b.ask(ctx, id, methodControl, runproto.ControlParams{Run: id, Control: c}, nil)
	if errors.Is(err, spool.ErrEnded) && (c.Op == spool.ControlStop || c.Op == spool.ControlKill) {
		return nil
	}
	return err
}

// ask asks the keeper of a live run. For a finished one it is
// [spool.ErrEnded].
func (b *Backend) ask(ctx context.Context, id spool.RunID, method string, params, result any) error {
	m, err := b.run(ctx, id)
	if err != nil {
		return err
	}
	for {
		if m.closed() {
			return fmt.Errorf("run %s: %w", id, spool.ErrEnded)
		}
		l, err := b.to(ctx, m.owner)
		if err == nil {
			err = l.call(ctx, method, params, result)
		}
		switch {
		case ctx.Err() != nil, b.ctx.Err() != nil, err != nil && !isGone(err):
			return err
		case err == nil:
			return nil
		}
		if err := m.lost(ctx, err); err != nil {
			return err
		}
	}
}

// Blob implements [spool.Backend].
func (b *Backend) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	if err := store.CheckDigest(d); err != nil {
		return nil, err
	}
	if _, err := b.run(ctx, id); err != nil {
		return nil, err
	}
	return b.store.Blob(d)
}

// Lease says that the runs with a label are to end when this process is gone
// and nobody else took the lease for so long. It tells every keeper, as the
// runs may be with any.
func (b *Backend) Lease(ctx context.Context, label spool.Label, ttl time.Duration) error {
	if _, err := b.current(ctx); err != nil {
		return err
	}
	_, err := b.toAll(ctx, methodLease, leaseParams{label, ttl.Milliseconds()}, nil)
	return err
}

// Leased reports whether some keeper knows of a lease.
func (b *Backend) Leased(ctx context.Context, label spool.Label) (bool, error) {
	found := false
	_, err := b.toAll(ctx, methodLeased, leaseParams{Label: label}, func(raw json.RawMessage) {
		var r leasedResult
		found = json.Unmarshal(raw, &r) == nil && r.Leased || found
	})
	return found, err
}

// Release gives a lease up; what it covered is not ended.
func (b *Backend) Release(ctx context.Context, label spool.Label) error {
	_, err := b.toAll(ctx, methodRelease, leaseParams{Label: label}, nil)
	return err
}

// toAll asks every living keeper, and returns how many were gone when asked.
func (b *Backend) toAll(ctx context.Context, method string, params any, each func(json.RawMessage)) (gone int, err error) {
	owners, err := host.Owners(b.opts.Dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, o := range owners {
		l, err := b.to(ctx, o.ID)
		var raw json.RawMessage
		if err == nil {
			err = l.call(ctx, method, params, &raw)
		}
		switch {
		case err == nil && each != nil:
			each(raw)
		case err == nil, errors.Is(err, spool.ErrUnsupported): // no keeper at all
		case isGone(err):
			gone++
		default:
			errs = append(errs, err)
		}
	}
	return gone, errors.Join(errs...)
}
