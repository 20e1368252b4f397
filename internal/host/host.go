// Package host is the local backend: it owns runs, their sessions and their
// logs. An engine appends its events here, to a log that is durable by default
// and readable from any cursor, by this process or a later one with the same
// state directory.
package host

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/gopool"
	"github.com/spool-run/spool/internal/privatedir"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/workspace"
)

// Defaults of [Options].
const (
	DefaultRetainAge   = 7 * 24 * time.Hour
	DefaultRetainBytes = 16 << 30
	DefaultRetainRuns  = 0 // any number
	DefaultSweepEvery  = time.Minute
	// DefaultCompressAfter is when a log is compressed, after its run ended:
	// most readers of a finished run come soon.
	DefaultCompressAfter = 10 * time.Minute
	// DefaultMemoryLog is the size of a log in memory without a state
	// directory.
	DefaultMemoryLog = 16 << 20
	// DefaultSharedMemory is the extra memory that the logs of busy runs share.
	DefaultSharedMemory = 32 << 20
	// keptInMemory is the number of finished runs kept without a state
	// directory.
	keptInMemory = 1000
	// trimEvery is the number of finished runs after which idle runs are
	// dropped from memory, beside the periodic sweep.
	trimEvery = 256
	// idleFor is how long a finished run stays in memory beside its copy on
	// disk, so that readers at its end need not reopen it. keptIdle limits the
	// number of such runs, because a busy host would otherwise hold many.
	idleFor  = 30 * time.Second
	keptIdle = 256
)

// NewEngine makes an engine when the first run needs it. Owner names this host.
// The engine puts the name on everything it creates outside the process, so
// that a later host can clean up after a dead one.
type NewEngine func(owner string) (engine.Engine, error)

// Options configure a host.
type Options struct {
	// Dir is the state directory. If empty, logs are only in memory.
	Dir string
	// Engines are made on first use, by name.
	Engines map[string]NewEngine
	// Sweep ends the processes that a dead host of that name left.
	Sweep func(owner string) error
	// Measure returns what the process trees of leaders use, by their pids. It
	// may be nil.
	Measure func(pids []int) (map[int]spool.Resources, error)
	// Retention limits finished runs; zero fields mean the defaults.
	Retention store.Retention
	// FileAfter is how long ago a run was completed before it is filed; zero
	// means [DefaultFileAfter].
	FileAfter time.Duration
	Sync      store.SyncPolicy
	SyncEvery time.Duration
	// SegmentBytes is the size of a segment file; zero means
	// [store.DefaultSegmentBytes].
	SegmentBytes int64
	// Forget keeps larger events only in the files, and twice as many bytes of
	// the newest events in memory, for a host whose readers read files. Zero
	// keeps the newest events of any size in memory, and more of them.
	Forget int
	// Spares is the number of files prepared for later runs, so that a start
	// need not create one.
	Spares int
	// Address is the socket of this host, for processes that find one of its
	// runs in the state directory. It may be empty.
	Address string
	// Build identifies the program, for processes that look for a host of the
	// same build.
	Build string
}

// Host is the local backend.
type Host struct {
	Workspaces
	opts  Options
	store *store.Store // nil without a state directory
	id    string

	memory *eventlog.Budget

	mu      sync.Mutex
	runs    map[spool.RunID]*run // live, starting, or recently used
	engines map[string]engine.Engine
	owner   *owner // registered by the first start
	closed  bool
	// forgotten are the last runs that were removed, without a state directory, after
	// forgottenBefore others.
	forgotten       []spool.RunID
	forgottenBefore int

	unsettled error // the recovery error of Open
	sweeping  bool  // sweepOften runs

	finished int         // number of finished runs
	ended    atomic.Bool // a run has finished since fileOften looked
	notes    notes
	news     news

	written atomic.Int64  // bytes appended since the last sweep
	nudge   chan struct{} // has space for one: the next sweep is due

	closing chan struct{}   // closed when Close begins
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	pool    gopool.Pool
}

var _ spool.Backend = (*Host)(nil)

// Open opens a host on a state directory and recovers the runs of dead hosts:
// it ends their processes and closes their runs with the outcome unknown.
// [Host.Unsettled] returns the error of the recovery.
func Open(o Options) (*Host, error) {
	if o.FileAfter == 0 {
		o.FileAfter = DefaultFileAfter
	}
	o.Retention = WithDefaults(o.Retention)
	h := &Host{opts: o, id: NewID(), memory: eventlog.NewBudget(DefaultSharedMemory), runs: make(map[spool.RunID]*run), engines: make(map[string]engine.Engine)}
	h.nudge, h.closing = make(chan struct{}, 1), make(chan struct{})
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.Workspaces = NewWorkspaces(h.Stat, nil)
	if o.Dir == "" {
		return h, nil
	}
	if err := checkPrivate(o.Dir); err != nil {
		return nil, fmt.Errorf("open state directory: %w%s", err, next(h.remedy(err)))
	}
	var err error
	h.store, err = store.Open(o.Dir, store.Options{Sync: o.Sync, SyncEvery: o.SyncEvery, SegmentBytes: o.SegmentBytes, Spares: o.Spares})
	if err != nil {
		return nil, fmt.Errorf("open host: %w%s", err, next(h.remedy(err)))
	}
	h.Workspaces = NewWorkspaces(h.Stat, h.store)
	// A failed recovery, for example on a full disk, does not prevent reading.
	// It is retried; see [Host.Unsettled].
	h.unsettled = h.recoverDead()
	return h, nil
}

// checkPrivate makes the state directory if it does not exist. Otherwise it
// checks that the directory and the files of the hosts in it are this user's own,
// and that no other user can change them: recovery does what they say. The store
// checks the files of a run when it opens them.
func checkPrivate(dir string) error {
	if err := privatedir.Make(dir); err != nil {
		return err
	}
	if err := privatedir.CheckEntries(dir); err != nil {
		return err
	}
	return privatedir.CheckEntries(filepath.Join(dir, hostsDir))
}

// Unsettled returns the recovery error of Open, or nil. The next host that
// opens the state directory retries, and so does this one if it starts runs.
func (h *Host) Unsettled() error { return h.unsettled }

// ID returns the name of this host, unique among those that share a state
// directory.
func (h *Host) ID() string { return h.id }

// Close kills all live runs, completes their logs and releases the state
// directory.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	h.closed = true
	live := slices.Collect(maps.Values(h.runs))
	h.mu.Unlock()
	close(h.closing)

	for _, r := range live {
		r.kill()
	}
	for _, r := range live {
		<-r.done
	}
	h.cancel()
	h.notes.stop()
	h.pool.Wait()

	var errs []error
	for _, e := range h.engines {
		if c, ok := e.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	complete := true
	for _, r := range live {
		errs = append(errs, r.release())
		complete = complete && !r.incomplete
	}
	if h.owner != nil && complete {
		errs = append(errs, h.owner.release())
	} else if h.owner != nil { // left for another host to recover
		errs = append(errs, h.owner.file.Close())
	}
	if h.store != nil {
		errs = append(errs, h.store.Close())
	}
	return errors.Join(errs...)
}

// idText has no characters that look alike.
var idText = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID returns an id for a run.
func NewID() string {
	var b [10]byte
	rand.Read(b[:]) // never fails
	return idText.EncodeToString(b[:])
}

// Start implements [spool.Backend].
func (h *Host) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if spec.Engine == "" {
		spec.Engine = spool.EngineProcess
	}
	if spec.ID == "" {
		spec.ID = spool.RunID(NewID())
	} else if err := spec.ID.Check(); err != nil {
		return spool.Info{}, &spool.StartError{Reason: engine.StartInvalid, Hint: "use 1 to 128 of a-z and 0-9", Err: err}
	}
	if len(spec.Name) > store.MaxName {
		return spool.Info{}, &spool.StartError{Reason: engine.StartInvalid, Err: fmt.Errorf("%w: a name of %d bytes, of at most %d", spool.ErrInvalid, len(spec.Name), store.MaxName)}
	}
	r, existing, err := h.reserve(ctx, spec)
	if err != nil {
		return spool.Info{}, err
	}
	if existing {
		select {
		case <-r.started:
		case <-ctx.Done():
			return spool.Info{}, context.Cause(ctx)
		}
		if r.startErr != nil {
			return spool.Info{}, r.startErr
		}
		return same(r.Info(), spec)
	}
	err = h.start(ctx, r, spec)
	if err != nil {
		h.mu.Lock()
		delete(h.runs, spec.ID)
		h.mu.Unlock()
		r.fail(err)
		if errors.Is(err, spool.ErrExists) {
			if r, findErr := h.find(spec.ID); findErr == nil {
				return same(r.Info(), spec)
			}
		}
		return spool.Info{}, err
	}
	return r.Info(), nil
}

// same acknowledges a repeated start. Another run with the same id is an error.
func same(info spool.Info, spec spool.Spec) (spool.Info, error) {
	if info.Engine != spec.Engine || !slices.Equal(info.Argv, spec.Argv) || info.Cwd != spec.Cwd || !sameIsolation(info.Isolation, spec.Isolation) || (info.Workspace == nil) != (spec.Workspace == nil) {
		return spool.Info{}, fmt.Errorf("start run %s: %w", spec.ID, spool.ErrExists)
	}
	return info, nil
}

// sameIsolation reports whether a run has the isolation that a repeated start asks
// for.
func sameIsolation(has, wants *spool.Isolation) bool {
	if has == nil || wants == nil { // a run that has a wall without a request has the profile none
		return wants == nil && (has == nil || has.Profile == "none")
	}
	for _, path := range wants.Writable { // an engine may add what its program needs
		if !slices.Contains(has.Writable, path) {
			return false
		}
	}
	return has.Profile == wants.Profile && slices.Equal(has.Protected, wants.Protected) &&
		slices.Equal(has.Readable, wants.Readable) && slices.Equal(has.Hidden, wants.Hidden) && slices.Equal(has.Hosts, wants.Hosts) &&
		slices.Equal(has.DeniedHosts, wants.DeniedHosts) && slices.Equal(has.Secrets, wants.Secrets) && has.AskHosts == wants.AskHosts && has.Proxy == wants.Proxy && has.Bare == wants.Bare
}

// reserve registers a run with that id, or returns the existing one.
func (h *Host) reserve(ctx context.Context, spec spool.Spec) (r *run, existing bool, err error) {
	info := spool.Info{
		ID: spec.ID, Name: spec.Name, Engine: spec.Engine, Labels: spec.Labels,
		Argv: spec.Argv, Cwd: spec.Cwd, TTY: spec.TTY != nil, Size: engine.TerminalSize(&spec), FirstSize: engine.TerminalSize(&spec),
		Isolation: spec.Isolation, Workspace: spec.Workspace, Owner: h.id, Created: time.Now().UTC().Round(0), State: spool.StateRunning,
	}
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil, false, spool.ErrClosed
	}
	if r, ok := h.runs[spec.ID]; ok && !r.isRemoved() {
		h.mu.Unlock()
		return r, true, nil
	}
	if err := h.checkName(&spec); err != nil {
		h.mu.Unlock()
		return nil, false, err
	}
	r = newRun(h.ctx, info)
	r.host, r.notification = h, notification(&spec)
	h.runs[spec.ID] = r
	h.mu.Unlock()
	return r, false, nil
}

func (h *Host) start(ctx context.Context, r *run, spec spool.Spec) error {
	e, err := h.engine(spec.Engine)
	if err != nil {
		return err
	}
	if _, ok := e.(engine.Isolator); spec.Isolation != nil && !ok {
		return &spool.StartError{Reason: engine.StartUnsupported, Hint: "start the run without an isolation",
			Err: fmt.Errorf("isolation_unavailable: engine %s does not isolate its runs", spec.Engine)}
	}
	if err := h.placeWorkspace(r, e, &spec); err != nil {
		return err
	}
	log := eventlog.Options{Run: spec.ID, Memory: DefaultMemoryLog, Shared: h.memory, Forget: h.opts.Forget}
	if h.store != nil {
		j, err := h.store.Create(r.info)
		if errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("start run %s: %w", spec.ID, spool.ErrExists)
		}
		if err != nil {
			return h.startError(err)
		}
		r.journal, log.Tier, log.Memory = j, j, eventlog.DefaultMemory
		if h.opts.Forget > 0 { // readers get the newest events, and read files for others
			log.Memory, log.Shared = 2*h.opts.Forget, nil
		}
	}
	r.log = eventlog.New(log)
	r.blobs = h.store
	session, err := r.startSession(ctx, e, spec)
	if err != nil {
		if r.journal != nil {
			err = errors.Join(err, r.journal.Discard())
		}
		return err
	}
	r.begin(session)
	if w := r.info.Workspace; w != nil && w.Kind == workspace.Overlay {
		h.pool.Go(func() { r.watchWorkspace(session, w) })
	}
	if s, ok := session.(engine.Ender); ok { // of thousands that live, none has a goroutine for its end
		s.OnEnd(func() { h.pool.Go(func() { h.finish(r) }) })
	} else {
		h.pool.Go(func() { h.finish(r) })
	}
	return nil
}

// finish waits for the end of a run and completes it.
func (h *Host) finish(r *run) {
	r.finish()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended.Store(true)
	if h.finished++; h.finished%trimEvery == 0 {
		h.trim()
	}
}

// engine returns the engine of that name and makes it on first use.
func (h *Host) engine(name string) (engine.Engine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.engines[name]; ok {
		if err := h.register(); err != nil {
			return nil, h.startError(err)
		}
		return e, nil
	}
	make, ok := h.opts.Engines[name]
	if !ok {
		return nil, &spool.StartError{Reason: engine.StartUnsupported, Err: fmt.Errorf("%w: no engine %q", spool.ErrUnsupported, name),
			Hint: "this host has " + strings.Join(slices.Sorted(maps.Keys(h.opts.Engines)), ", ")}
	}
	if err := h.register(); err != nil {
		return nil, h.startError(err)
	}
	e, err := make(h.id)
	if err != nil {
		return nil, h.startError(fmt.Errorf("set up engine %s: %w", name, err))
	}
	h.engines[name] = e
	return e, nil
}

// register writes the file of this host to the state directory, unless it
// exists. The caller holds h.mu. A run must not exist before it: other hosts
// would consider it dead.
func (h *Host) register() error {
	if h.owner != nil || h.store == nil {
		return nil
	}
	o, err := register(h.opts.Dir, Owner{ID: h.id, Pid: os.Getpid(), Address: h.opts.Address, Build: h.opts.Build, Layout: layoutFiled})
	if err != nil {
		return err
	}
	if err := h.store.KeepReserve(); err != nil {
		return errors.Join(err, o.release())
	}
	h.owner = o
	if !h.sweeping {
		h.sweeping = true
		h.pool.Go(h.sweepOften)
		h.pool.Go(h.compressOften)
		h.pool.Go(h.fileOften)
	}
	return nil
}

// Register writes the file of this host before its first start does.
func (h *Host) Register() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.register()
}

// Unregister removes the file of this host, which is about to close. With a
// live run the file stays.
func (h *Host) Unregister() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.owner == nil || h.live() > 0 {
		return nil
	}
	err := h.owner.release()
	h.owner = nil
	return err
}

// Live returns how many runs are starting or not closed.
func (h *Host) Live() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.live()
}

// live is Live for callers that hold h.mu.
func (h *Host) live() int {
	n := 0
	for _, r := range h.runs {
		if !r.isDone() {
			n++
		}
	}
	return n
}

// KillLabelled kills the runs of this host that have a label.
func (h *Host) KillLabelled(ctx context.Context, key, value string) {
	h.mu.Lock()
	var marked []*run
	for _, r := range h.runs {
		if r.info.Labels[key] == value && !r.isDone() {
			marked = append(marked, r)
		}
	}
	h.mu.Unlock()
	for _, r := range marked {
		r.kill()
	}
}

// find returns a run from memory or from the state directory.
func (h *Host) find(id spool.RunID) (*run, error) {
	h.mu.Lock()
	r, ok := h.runs[id]
	closed := h.closed
	h.mu.Unlock()
	switch {
	case closed:
		return nil, spool.ErrClosed
	case ok:
		<-r.started
		if r.startErr != nil {
			return nil, fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
		}
		return r, nil
	case h.store == nil || id.Check() != nil:
		return nil, fmt.Errorf("run %.140s: %w", id, spool.ErrNotFound)
	}
	j, err := h.store.Open(id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("run %s: %w", id, spool.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", id, err)
	}
	r = openRun(h.ctx, id, j)
	h.mu.Lock()
	defer h.mu.Unlock()
	if other, ok := h.runs[id]; ok { // another goroutine was faster
		return other, j.Close()
	}
	if r.Info().State == spool.StateClosed {
		h.runs[id] = r
	}
	return r, nil
}

// trim drops finished runs that were not used lately, and the least recently
// used ones if there are too many. The caller holds h.mu.
func (h *Host) trim() {
	type use struct {
		*run
		at time.Time
	}
	var idle []use
	for _, r := range h.runs {
		if !r.isDone() {
			continue
		}
		at := r.lastUse()
		if h.store == nil { // there is no other copy
			at = r.info.Created
		}
		idle = append(idle, use{r, at})
	}
	slices.SortFunc(idle, func(a, b use) int { return a.at.Compare(b.at) })
	keep := keptInMemory
	if h.store != nil {
		keep = keptIdle
	}
	for i, r := range idle {
		if len(idle)-i <= keep && (h.store == nil || time.Since(r.at) <= idleFor) {
			break
		}
		delete(h.runs, r.info.ID)
		r.retire()
	}
}
