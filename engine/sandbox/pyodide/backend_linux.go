//go:build amd64 || arm64

package pyodide

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/engine/sandbox/guest"
)

// Backend is the Pyodide back end. It keeps, for each setup, the processes
// that interpreters come from, as long as contexts use them and a while longer.
type Backend struct {
	opts Options

	mu     sync.Mutex
	closed bool
	setups map[string]*setup
	wg     sync.WaitGroup // of what the setups do; added to only while not closed
}

var _ guest.Backend = (*Backend)(nil)

// New returns a back end. It starts nothing until it is used, and must be
// closed.
func New(o Options) *Backend {
	o.Self = cmp.Or(o.Self, "/proc/self/exe")
	o.KeepIdle = cmp.Or(o.KeepIdle, DefaultKeepIdle)
	o.Spares = cmp.Or(o.Spares, DefaultSpares)
	return &Backend{opts: o, setups: make(map[string]*setup)}
}

// Name returns [Name].
func (b *Backend) Name() string { return Name }

// setup returns what is known of a setup.
func (b *Backend) setup(s guest.Setup) (*setup, error) {
	s.Progress = nil
	slices.Sort(s.Packages)
	s.Packages = slices.Compact(s.Packages)
	key := fmt.Sprintf("%q", []string{s.Dist, s.Wheels, strings.Join(s.Packages, "\x00"), s.CacheDir, string(s.Isolation)})
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	u := b.setups[key]
	if u == nil {
		u = &setup{backend: b, asked: s, turn: make(chan struct{}, 1)}
		b.setups[key] = u
	}
	return u, nil
}

var errClosed = errors.New("the pyodide back end is closed")

// Prepare makes ready what contexts of a setup share.
func (b *Backend) Prepare(ctx context.Context, s guest.Setup) (guest.Prewarm, error) {
	s.Packages = slices.Clone(s.Packages)
	u, err := b.setup(s)
	if err != nil {
		return guest.Prewarm{}, err
	}
	n, prewarm, err := u.acquire(ctx, s.Progress)
	if err != nil {
		return guest.Prewarm{}, err
	}
	u.release(n)
	return prewarm, nil
}

// Open returns a new context.
func (b *Backend) Open(ctx context.Context, o guest.Options) (guest.Context, error) {
	if o.Fuel != 0 {
		return nil, unavailable("leave fuel out, or use the embedded back end", errors.New("work is not counted in Node"))
	}
	o.Packages = slices.Clone(o.Packages)
	o.Memory = cmp.Or(o.Memory, guest.DefaultMemory)
	o.OpenFiles = cmp.Or(o.OpenFiles, guest.DefaultOpenFiles)
	u, err := b.setup(o.Setup)
	if err != nil {
		return nil, err
	}
	n, _, err := u.acquire(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	return &box{setup: u, nest: n, options: o}, nil
}

// Close ends all that the back end started, and waits for it.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	left := b.setups
	b.setups = nil
	b.mu.Unlock()
	for _, u := range left {
		u.close()
	}
	b.wg.Wait()
	return nil
}

// begin counts something that Close waits for.
func (b *Backend) begin(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.wg.Go(f)
	return true
}

// setup is what contexts of one setup share.
type setup struct {
	backend *Backend
	asked   guest.Setup
	turn    chan struct{} // held by whoever prepares

	mu     sync.Mutex
	nest   *nest // nil if there is none
	pool   *pool // of the nest, if it does not fork
	done   guest.Prewarm
	users  int // contexts and preparations
	idle   *time.Timer
	closed bool
}

// acquire returns the nest of the setup, and makes it if there is none. It
// must be released.
func (u *setup) acquire(ctx context.Context, progress func(guest.Progress)) (*nest, guest.Prewarm, error) {
	select {
	case u.turn <- struct{}{}:
		defer func() { <-u.turn }()
	case <-ctx.Done():
		return nil, guest.Prewarm{}, ctx.Err()
	}
	if n, p, ok := u.take(); ok {
		return n, p, nil
	}
	if progress == nil {
		progress = func(guest.Progress) {}
	}
	n, p, err := u.prepare(ctx, progress)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		n.close()
		return nil, guest.Prewarm{}, errClosed
	}
	old, oldPool := u.nest, u.pool
	u.nest, u.users, u.done = n, 1, p
	u.pool = newPool(n, u.backend.opts.Spares)
	u.done.Executed, u.done.Reason, u.done.Duration = false, guest.ReasonCached, 0
	u.mu.Unlock()
	if old != nil {
		oldPool.close()
		old.close()
	}
	return n, p, nil
}

// take returns the nest if there is one that works.
func (u *setup) take() (*nest, guest.Prewarm, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.nest == nil || u.nest.failure() != nil {
		return nil, guest.Prewarm{}, false
	}
	u.users++
	if u.idle != nil {
		u.idle.Stop()
		u.idle = nil
	}
	return u.nest, u.done, true
}

// release gives a nest back. Without users it ends after a while.
func (u *setup) release(n *nest) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.nest != n {
		return // it has been replaced, and ends with the last of its processes
	}
	if u.users--; u.users > 0 || u.closed {
		return
	}
	u.idle = time.AfterFunc(u.backend.opts.KeepIdle, func() {
		u.backend.begin(func() { u.expire(n) })
	})
}

func (u *setup) expire(n *nest) {
	u.mu.Lock()
	if u.nest != n || u.users > 0 || u.closed {
		u.mu.Unlock()
		return
	}
	pool := u.pool
	u.nest, u.pool, u.idle = nil, nil, nil
	u.mu.Unlock()
	pool.close()
	n.close()
}

func (u *setup) close() {
	u.mu.Lock()
	n, pool := u.nest, u.pool
	u.nest, u.pool, u.closed = nil, nil, true
	if u.idle != nil {
		u.idle.Stop()
	}
	u.mu.Unlock()
	if n != nil {
		pool.close()
		n.close()
	}
}

// process returns one that waits for its first script.
func (u *setup) process(ctx context.Context, n *nest, memory int64) (*process, error) {
	u.mu.Lock()
	pool := u.pool
	if u.nest != n {
		pool = nil
	}
	u.mu.Unlock()
	if pool == nil {
		return nil, errGone
	}
	var p *process
	if n.forks() {
		if p = pool.spare(ctx); p == nil {
			return n.begin(doFork, memory+heapSlack)
		}
	} else {
		var err error
		if p, err = pool.get(ctx); err != nil {
			return nil, err
		}
	}
	if err := n.order(order{Do: doSeal, ID: p.id, Memory: memory + heapSlack}, -1); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// heapSlack is the memory that a process may have beyond what its interpreter
// may: JavaScript's own, and what the system needs to hand out memory.
const heapSlack = 64 << 20

// prepare finds out what is there, takes a snapshot if there is no valid one,
// and makes a nest.
func (u *setup) prepare(ctx context.Context, progress func(guest.Progress)) (*nest, guest.Prewarm, error) {
	began := time.Now()
	w, err := u.lookAround(ctx)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	prewarm := guest.Prewarm{Reason: guest.ReasonCached, CacheDir: w.cache, Dist: w.dist.dir}
	stamp, err := readStamp(w.cache, w.fingerprint)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	if stamp == nil {
		progress(guest.Progress{Step: "load Pyodide", Fraction: 0})
		if stamp, err = u.snapshot(ctx, w); err != nil {
			return nil, guest.Prewarm{}, err
		}
		prewarm.Executed, prewarm.Reason = true, guest.ReasonExecuted
	}
	progress(guest.Progress{Step: "start Pyodide", Fraction: 0.5})
	n, err := u.start(ctx, w, stamp)
	if err != nil {
		return nil, guest.Prewarm{}, err
	}
	progress(guest.Progress{Step: "start Pyodide", Fraction: 1})
	if prewarm.Executed {
		prewarm.Duration = time.Since(began)
	}
	prewarm.Walls = n.up.Walls
	prewarm.Version = "Node " + strings.TrimPrefix(w.node.version, "v")
	if info := n.ready; info != nil && info.Kind == kindPyodide {
		prewarm.Version = fmt.Sprintf("Python %s, Pyodide %s, %s", info.Python, info.Version, prewarm.Version)
	}
	return n, prewarm, nil
}

// ware is what a setup is made of on this machine.
type ware struct {
	dist        *dist
	node        *node
	cache       string
	fingerprint string
	packages    []lockPackage
	packagesDir string
}

func (u *setup) lookAround(ctx context.Context) (*ware, error) {
	o := u.backend.opts
	dir, err := findDist(cmp.Or(u.asked.Dist, o.Dist))
	if err != nil {
		return nil, err
	}
	w := &ware{}
	if w.dist, err = openDist(dir); err != nil {
		return nil, err
	}
	if w.node, err = findNode(ctx, o.Node); err != nil {
		return nil, err
	}
	if w.cache, err = cacheDir(cmp.Or(u.asked.CacheDir, o.CacheDir)); err != nil {
		return nil, err
	}
	if w.fingerprint, err = w.dist.fingerprint(w.node.path); err != nil {
		return nil, err
	}
	need := []string{w.node.path, w.dist.dir}
	for name := range w.dist.files {
		need = append(need, filepath.Join(w.dist.dir, name))
	}
	if err := readable(need...); err != nil {
		return nil, err
	}
	if len(u.asked.Packages) == 0 {
		return w, nil
	}
	if w.packages, err = w.dist.lock.resolve(u.asked.Packages); err != nil {
		return nil, err
	}
	sources := []string{w.dist.dir}
	if u.asked.Wheels != "" {
		sources = []string{u.asked.Wheels, w.dist.dir}
	}
	w.packagesDir, err = stage(w.cache, w.packages, sources)
	return w, err
}

func cacheDir(given string) (string, error) {
	if given == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache directory: %w", err)
		}
		given = filepath.Join(cache, "spool")
	}
	dir := filepath.Join(given, cacheName)
	return dir, os.MkdirAll(dir, 0o755)
}

// runnerConfig is what the runner is told.
type runnerConfig struct {
	Mode     string   `json:"mode,omitempty"`
	Dist     string   `json:"dist"`
	Packages []string `json:"packages,omitempty"`
	Imports  []string `json:"imports,omitempty"`
	From     string   `json:"packages_dir,omitempty"`
	Snapshot bool     `json:"snapshot,omitempty"`
	Boot     string   `json:"boot"`
	Module   string   `json:"module"`
	Prelude  string   `json:"prelude"`
	Mark     byte     `json:"mark"`
}

// unownedUID is who interpreters are outside their namespaces where this
// process is root and may choose: nobody that owns anything.
const unownedUID = 0x5b00_0001

// heapMB bounds JavaScript's own heap, which holds little: Python's is not in
// it.
const heapMB = 256

func (w *ware) plan(c runnerConfig, bare string) (plan, error) {
	c.Dist, c.Boot, c.Module, c.Prelude = guestDist, guest.Boot, guest.Module, preludeSource
	p := plan{
		Node: w.node.path, Libs: w.node.libs, Dist: w.dist.dir, HostUID: unownedUID, HeapMB: heapMB, Fork: true, Bare: bare,
	}
	packages := guestPackages
	if bare != "" {
		p.Fork, c.Dist, packages = false, bareDist, barePackages
	}
	if c.Mode == "" && w.packagesDir != "" {
		p.Packages, c.From = w.packagesDir, packages
		for _, pk := range w.packages {
			c.Packages = append(c.Packages, pk.Name)
		}
	}
	p.Mark = c.Mark
	config, err := json.Marshal(c)
	p.Config = config
	return p, err
}

// snapshot loads the distribution once and keeps its memory, if it has such a
// thing.
func (u *setup) snapshot(ctx context.Context, w *ware) (*stamp, error) {
	file, err := os.CreateTemp(w.cache, "snapshot-*.tmp")
	if err != nil {
		return nil, fmt.Errorf("make snapshot: %w", err)
	}
	defer os.Remove(file.Name())
	defer file.Close()
	n, err := u.walled(ctx, w, runnerConfig{Mode: "snapshot"}, func(p *plan) { p.Snapshot = snapshotWrite }, file)
	if err != nil {
		return nil, err
	}
	defer n.close()
	info := n.ready
	if info == nil { // it cannot fork here, so it has not loaded anything yet
		pr, err := n.begin(doStart, 0)
		if err != nil {
			return nil, err
		}
		if info, err = pr.ready(ctx); err != nil {
			return nil, unavailable("", fmt.Errorf("load %s: %w", w.dist.dir, err))
		}
		pr.end()
	}
	return writeStamp(w.cache, w.fingerprint, file, info.Kind)
}

// start makes the nest that interpreters come from.
func (u *setup) start(ctx context.Context, w *ware, s *stamp) (*nest, error) {
	c := runnerConfig{Mark: byte(time.Now().UnixNano()), Snapshot: s.Snapshot}
	for _, name := range u.asked.Packages {
		if pk := w.dist.lock.packages[normalise(name)]; len(pk.Imports) > 0 {
			c.Imports = append(c.Imports, pk.Imports[0])
		}
	}
	if s.Kind != kindPyodide && len(u.asked.Packages) > 0 {
		return nil, unavailable("", errors.New("a replacement of Pyodide takes no packages"))
	}
	var file *os.File
	if s.Snapshot {
		var err error
		if file, err = os.Open(snapshotPath(w.cache, w.fingerprint)); err != nil {
			return nil, fmt.Errorf("open snapshot: %w", err)
		}
		defer file.Close()
	}
	n, err := u.walled(ctx, w, c, func(p *plan) {
		p.Fork = p.Fork && s.Kind == kindPyodide && !u.backend.opts.NoFork
		if s.Snapshot {
			p.Snapshot = snapshotRead
		}
	}, file)
	if err != nil {
		return nil, err
	}
	if u.asked.Isolation == guest.IsolateStrict && !slices.Contains(n.up.Walls, WallStrictFilter) {
		n.close()
		return nil, unavailable("leave the isolation open to have the others", fmt.Errorf("strict isolation needs a wall that cannot be had here: %s", WallStrictFilter))
	}
	return n, nil
}

// walled makes a nest behind the best walls that this machine offers, or says
// that those which were asked for cannot be had.
func (u *setup) walled(ctx context.Context, w *ware, c runnerConfig, change func(*plan), snapshot *os.File) (*nest, error) {
	try := func(bare string) (*nest, error) {
		p, err := w.plan(c, bare)
		if err != nil {
			return nil, err
		}
		change(&p)
		return startNest(ctx, u.backend.opts.Self, p, snapshot)
	}
	var err error
	if u.backend.opts.NoNamespaces {
		err = fmt.Errorf("%w: they are switched off", errNoNamespaces)
	} else {
		var n *nest
		if n, err = try(""); err == nil {
			return n, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !errors.Is(err, errNoNamespaces) {
		return nil, unavailable("", fmt.Errorf("load %s: %w", w.dist.dir, err))
	}
	if u.asked.Isolation == guest.IsolateStrict {
		return nil, unavailable("leave the isolation open to have the others", fmt.Errorf("strict isolation needs a wall that cannot be had here: %w", err))
	}
	bare := bareConfined
	if _, lerr := landlockRights(); lerr != nil {
		if u.asked.Isolation != guest.IsolateNone {
			return nil, unavailable("ask for no isolation if scripts may read what you may", fmt.Errorf("no wall around files can be had here: %w", errors.Join(err, lerr)))
		}
		bare = bareOpen
	}
	n, err := try(bare)
	if err != nil && ctx.Err() == nil {
		err = unavailable("", fmt.Errorf("load %s: %w", w.dist.dir, err))
	}
	return n, err
}

// errNoNamespaces says that the kernel has none for us.
var errNoNamespaces = errors.New("no namespaces")

// cacheName is our directory in a cache directory.
const cacheName = "pyodide-back-end"
