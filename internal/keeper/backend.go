package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/gopool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
	"github.com/spool-run/spool/python"
)

// Options configure a backend over the keepers of a state directory.
type Options struct {
	Dir    string
	Build  string  // of the keeper that starts new runs
	Keeper Command // starts that keeper
	Host   host.Options
	// Limits are the defaults of the runs this backend starts.
	Limits spool.Limits
	// Inherit, if not nil, gives a spec what its engine would take from
	// this process.
	Inherit func(spec *spool.Spec) error
	// Archive, if not nil, has the logs of finished runs that the state
	// directory does not have.
	Archive Archive
}

// Archive fetches finished runs. The error of both methods is [spool.ErrNotFound] if
// there is no such run, or no such blob.
type Archive interface {
	// Fetch returns a state directory that has the log of a run.
	Fetch(ctx context.Context, id spool.RunID) (dir string, err error)
	// FetchBlob returns a state directory that has a blob of a run.
	FetchBlob(ctx context.Context, id spool.RunID, d spool.Digest) (dir string, err error)
}

// Backend gives access to the runs of a state directory, live and finished, of
// all its keepers. It is safe for concurrent use.
type Backend struct {
	host.Workspaces // of which this process opens the files itself
	opts            Options
	store           *store.Store
	relays          *eventlog.Batches

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // connections to keepers, and mirrors that ask

	updates gopool.Pool // asks keepers, and applies what they tell

	mu       sync.Mutex
	keepers  map[string]*keeperConn // by owner
	own      *keeperConn            // the keeper of our build
	came     chan struct{}          // closed when own is another
	runs     map[spool.RunID]*mirror
	changed  int // how many mirrors have come, or may have become unused, since trim looked
	closed   bool
	children []int // pids of keepers that this process has started
}

var _ spool.Backend = (*Backend)(nil)

// Open opens a state directory. It does not start a keeper.
func Open(o Options) (*Backend, error) {
	o.Host.Dir, o.Host.Engines = o.Dir, nil
	if err := host.Settle(o.Host); err != nil {
		return nil, err
	}
	s, err := store.Open(o.Dir, store.Options{})
	if err != nil {
		return nil, err
	}
	b := &Backend{opts: o, store: s, relays: eventlog.NewBatches(eventlog.DefaultBatches), keepers: make(map[string]*keeperConn), came: make(chan struct{}), runs: make(map[spool.RunID]*mirror)}
	b.Workspaces = host.NewWorkspaces(b.Stat, s)
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

// Close closes the files and the connections to the keepers. The runs go on.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
	b.updates.Wait()
	b.reap(nil)
	var errs []error
	for _, m := range b.runs {
		errs = append(errs, m.close())
	}
	return errors.Join(append(errs, b.store.Close())...)
}

// inherit sets the environment and the working directory of a spec to what they
// would be if this process ran it.
func inherit(spec *spool.Spec) (err error) {
	if spec.EnvPolicy != nil { // without a policy it inherits nothing
		env, err := environ.Make(spec.EnvPolicy, os.Environ(), spec.Env)
		if err != nil {
			return &spool.StartError{Reason: engine.StartInvalid, Err: err}
		}
		spec.EnvPolicy, spec.Env = nil, make(map[string]string, len(env))
		for _, kv := range env {
			k, v, _ := cutEnv(kv)
			spec.Env[k] = v
		}
	}
	if spec.Cwd == "" {
		if spec.Cwd, err = os.Getwd(); err != nil {
			return &spool.StartError{Reason: engine.StartBadCwd, Err: err}
		}
	}
	return nil
}

// Start implements [spool.Backend]. It derives the environment here, because the
// keeper's environment is that of the process that started the keeper.
func (b *Backend) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if err := b.complete(&spec); err != nil {
		return spool.Info{}, err
	}
	for {
		k, err := b.ownKeeper(ctx)
		if err != nil {
			return spool.Info{}, err
		}
		var info spool.Info
		first := k.first.register(spec.ID)
		if err = k.start(ctx, record.Start{Spec: spec, Update: first != nil}, &info); err == nil {
			b.attach(k, info, first)
			return info, nil
		}
		k.first.cancel(spec.ID, first)
		if !b.triesAgain(ctx, err) {
			return info, err
		}
	}
}

// Execute implements [spool.Executor]. Until the run is closed nothing comes from the
// keeper, and this process has no part in the run.
func (b *Backend) Execute(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if err := b.complete(&spec); err != nil {
		return spool.Info{}, err
	}
	for {
		k, err := b.ownKeeper(ctx)
		if err != nil {
			return spool.Info{}, err
		}
		var info spool.Info
		if err = k.start(ctx, record.Start{Spec: spec, Closed: true}, &info); !b.triesAgain(ctx, err) {
			return info, err
		}
	}
}

// TryStart is Start that does not wait: it has done called with the result by the
// goroutine that reads from the keeper, so that it must not block. It reports false, and
// done is not called, if there is no connection to a keeper, or the keeper cannot be asked
// at once. If the run is to have a reader, done reports true and has another goroutine call
// attach, which may wait, before it reads.
func (b *Backend) TryStart(spec spool.Spec, done func(info spool.Info, err error, attach func()) bool) bool {
	k := b.connected()
	if k == nil || b.complete(&spec) != nil {
		return false
	}
	first := k.first.register(spec.ID)
	asked := k.tryStart(record.Start{Spec: spec, Update: first != nil}, func(info spool.Info, err error) {
		if b.triesAgain(b.ctx, err) {
			k.first.cancel(spec.ID, first)
			b.updates.Go(func() {
				info, err := b.Start(b.ctx, spec)
				done(info, err, func() {})
			})
			return
		}
		if attaches := done(info, err, func() { b.attach(k, info, first) }); !attaches {
			k.first.cancel(spec.ID, first)
		}
	})
	if !asked {
		k.first.cancel(spec.ID, first)
	}
	return asked
}

// TryExecute is Execute that does not wait, like [Backend.TryStart].
func (b *Backend) TryExecute(spec spool.Spec, done func(spool.Info, error)) bool {
	k := b.connected()
	if k == nil || b.complete(&spec) != nil {
		return false
	}
	return k.tryStart(record.Start{Spec: spec, Closed: true}, func(info spool.Info, err error) {
		if b.triesAgain(b.ctx, err) {
			b.updates.Go(func() { done(b.Execute(b.ctx, spec)) })
			return
		}
		done(info, err)
	})
}

// connected returns the connection to the keeper that starts new runs, or nil.
func (b *Backend) connected() *keeperConn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.own == nil || !b.own.alive() {
		return nil
	}
	return b.own
}

// attach adds the mirror of a run that was just started, and has it get the first update
// that was registered before, which may be nil.
func (b *Backend) attach(k *keeperConn, info spool.Info, first *firstUpdate) {
	m := b.addStarted(info)
	switch {
	case m != nil && first != nil && m.owner == k.owner && m.expectFirst():
		k.first.bind(m.id, first, m)
		return
	case m != nil:
		m.request(0)
	}
	k.first.cancel(info.ID, first)
}

// complete gives a spec all that the keeper must know.
func (b *Backend) complete(spec *spool.Spec) error {
	if b.isClosed() {
		return spool.ErrClosed
	}
	if b.opts.Inherit != nil {
		if err := b.opts.Inherit(spec); err != nil {
			return err
		}
	}
	if spec.Engine != python.EngineSandbox { // a sandbox inherits nothing
		if err := inherit(spec); err != nil {
			return err
		}
	}
	if spec.ID == "" {
		spec.ID = spool.RunID(host.NewID()) // so that a repeated start has no effect
	}
	spec.Limits = WithDefaults(spec, b.opts.Limits)
	return nil
}

// triesAgain reports whether a start with this error is repeated, because the keeper was
// about to end, or died.
func (b *Backend) triesAgain(ctx context.Context, err error) bool {
	return errors.Is(err, rpc.ErrConnClosed) && ctx.Err() == nil && b.ctx.Err() == nil
}

func cutEnv(kv string) (k, v string, ok bool) {
	for i := 1; i < len(kv); i++ { // a name may begin with =
		if kv[i] == '=' {
			return kv[:i], kv[i+1:], true
		}
	}
	return kv, "", false
}

// WithDefaults returns the limits of a spec, with its zero fields taken from d.
func WithDefaults(spec *spool.Spec, d spool.Limits) spool.Limits {
	if spec.Engine == python.EngineSandbox { // has its own
		d.MemoryBytes, d.CPUs, d.OpenFiles = 0, 0, 0
	}
	return limits.Merge(spec.Limits, d)
}

func (b *Backend) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// mirrorOf returns the mirror of a run.
func (b *Backend) mirrorOf(ctx context.Context, id spool.RunID) (*mirror, error) {
	b.mu.Lock()
	m, ok := b.runs[id]
	closed := b.closed
	b.mu.Unlock()
	if closed {
		return nil, spool.ErrClosed
	}
	if ok && m.isEvicted() {
		b.drop(m)
		ok = false
	}
	if ok {
		m.touch()
		return m, nil
	}
	j, err := b.store.Open(id)
	if errors.Is(err, fs.ErrNotExist) && b.isStarting(ctx, id) {
		j, err = b.store.Open(id)
	}
	if errors.Is(err, fs.ErrNotExist) && b.opts.Archive != nil {
		return b.fetch(ctx, id)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, spool.ErrInvalid) {
		return nil, fmt.Errorf("run %.140s: %w", id, spool.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	return b.addMirror(newMirror(b, j.Info(), j))
}

// isStarting asks the keepers for a run that has no file, and reports whether it
// has one now. List returns a run as soon as its start begins, so the run must
// be found from then on.
func (b *Backend) isStarting(ctx context.Context, id spool.RunID) bool {
	found := false
	// A keeper answers once the start is over; an unknown run is an error.
	_, _ = b.callAll(ctx, methodStat, runproto.RunParams{Run: id}, func(json.RawMessage) { found = true })
	return found
}

// addStarted adds and returns the mirror of a run that was just started. It returns nil
// if the run is not new.
func (b *Backend) addStarted(info spool.Info) *mirror {
	b.mu.Lock()
	m, known := b.runs[info.ID]
	b.mu.Unlock()
	if known && m.removed() { // its ID is used again
		b.drop(m)
		known = false
	}
	if known || info.Last > 0 {
		return nil
	}
	j, err := b.store.OpenNew(info)
	if err != nil {
		return nil // a read returns the error
	}
	m = newMirror(b, info, j)
	if other, err := b.addMirror(m); err != nil || other != m {
		return nil
	}
	return m
}

// addMirror adds a mirror. If the run has one already, it returns that one.
func (b *Backend) addMirror(m *mirror) (*mirror, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errors.Join(spool.ErrClosed, m.close())
	}
	if other, ok := b.runs[m.id]; ok && !other.gone.Load() { // another goroutine was first
		return other, m.close()
	}
	b.runs[m.id] = m
	b.trim()
	return m, nil
}

// mayBeUnused is called when a reader of a closed run is done.
func (b *Backend) mayBeUnused() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.trim()
	}
}

// keptMirrors is the number of finished runs that stay open for reading. There are up to
// half as many more until trim looks.
const keptMirrors = 256

// trim closes the finished runs that were used longest ago. It is called when a mirror has
// come, or may have become unused, and looks at them all now and then. Callers hold b.mu.
func (b *Backend) trim() {
	if b.changed++; b.changed <= keptMirrors/2 {
		return
	}
	b.changed = 0
	var done []*mirror
	for _, m := range b.runs {
		if m.unused() {
			done = append(done, m)
		}
	}
	if len(done) <= keptMirrors {
		return
	}
	slices.SortFunc(done, func(a, b *mirror) int { return a.lastUse().Compare(b.lastUse()) })
	for _, m := range done[:len(done)-keptMirrors/2] {
		delete(b.runs, m.id)
		_ = m.close() // open for reading: nothing is lost
	}
}

// Send implements [spool.Backend].
func (b *Backend) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	repeats := in.ID != ""
	if !repeats {
		in.ID = host.NewID()
	}
	var receipt spool.Receipt
	params := runproto.SendParams{Run: id, Input: in}
	err := b.callOwner(ctx, id, methodSend, params, &receipt)
	if errors.Is(err, spool.ErrEnded) {
		if repeats && b.accepted(ctx, id, params, &receipt) {
			return receipt, nil
		}
		err = fmt.Errorf("run %s: %w", id, spool.ErrInputClosed)
	}
	return receipt, err
}

// accepted reports whether an input came before the run ended: the keeper remembers
// that for a while. A sender whose answer was lost must not be told that the input was
// refused.
func (b *Backend) accepted(ctx context.Context, id spool.RunID, params runproto.SendParams, receipt *spool.Receipt) bool {
	m, err := b.mirrorOf(ctx, id)
	if err != nil {
		return false
	}
	k, err := b.keeperOf(ctx, m.owner)
	return err == nil && k.call(ctx, methodSend, params, receipt) == nil && receipt.Repeated
}

// Control implements [spool.Backend].
func (b *Backend) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	params := runproto.ControlParams{Run: id, Control: c}
	err := b.callOwner(ctx, id, methodControl, params, nil)
	switch {
	case !errors.Is(err, spool.ErrEnded):
		return err
	case c.Op == spool.ControlStop, c.Op == spool.ControlKill, c.ID != "" && b.done(ctx, id, params):
		return nil
	}
	return err
}

// done reports whether a control was done before the run ended, perhaps by it.
func (b *Backend) done(ctx context.Context, id spool.RunID, params runproto.ControlParams) bool {
	m, err := b.mirrorOf(ctx, id)
	if err != nil {
		return false
	}
	k, err := b.keeperOf(ctx, m.owner)
	return err == nil && k.call(ctx, methodControl, params, nil) == nil
}

// callOwner makes a request to the keeper of a run. For a finished run the error
// is [spool.ErrEnded].
func (b *Backend) callOwner(ctx context.Context, id spool.RunID, method string, params, result any) error {
	m, err := b.mirrorOf(ctx, id)
	if err != nil {
		return err
	}
	for {
		if m.closed() {
			return fmt.Errorf("run %s: %w", id, spool.ErrEnded)
		}
		k, err := b.keeperOf(ctx, m.owner)
		if err == nil {
			err = k.call(ctx, method, params, result)
		}
		switch {
		case ctx.Err() != nil, b.ctx.Err() != nil, err != nil && !isGone(err):
			return err
		case err == nil:
			return nil
		}
		if err := m.settle(ctx, err); err != nil {
			return err
		}
	}
}

// Blob implements [spool.Backend].
func (b *Backend) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	if err := store.CheckDigest(d); err != nil {
		return nil, err
	}
	m, err := b.existing(ctx, id)
	if err != nil {
		return nil, err
	}
	if m.archived != nil {
		return b.archivedBlob(ctx, id, d)
	}
	return b.store.Blob(d)
}

// callAll makes a request to every living keeper, and returns how many were gone
// by then.
func (b *Backend) callAll(ctx context.Context, method string, params any, each func(json.RawMessage)) (gone int, err error) {
	owners, err := host.Owners(b.opts.Dir)
	if err != nil {
		return 0, err
	}
	var errs []error
	for _, o := range owners {
		k, err := b.keeperOf(ctx, o.ID)
		var raw json.RawMessage
		if err == nil {
			err = k.call(ctx, method, params, &raw)
		}
		switch {
		case err == nil && each != nil:
			each(raw)
		case err == nil, errors.Is(err, spool.ErrUnsupported), isUnknownMethod(err): // the host is not a keeper, or an older one
		case isGone(err):
			gone++
		default:
			errs = append(errs, err)
		}
	}
	return gone, errors.Join(errs...)
}
