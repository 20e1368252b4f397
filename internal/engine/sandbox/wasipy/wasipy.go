// Package wasipy is the embedded back end of the sandbox engine: CPython,
// compiled to WebAssembly and carried by this binary, executed by wazero.
//
// The first use of a machine compiles the interpreter, starts it, imports what
// scripts use most and keeps the memory it then has. From there on an
// interpreter is a private mapping of that memory: it is there in less than a
// millisecond, and costs what it writes to.
//
// A guest has no system calls. What it calls instead is in wasi*.go and
// hostcall.go, over the file system and the host that its context was given.
// Its loops count: every so many passes it calls out, so that it can be
// stopped, and so that the work it did is a number (see build/pack).
//
// Interpreters run in worker processes of this same binary, in a cell of package
// isolate. They also give up what they do not need before they execute anything (see
// [Work]). They run in this process where workers are not available, or with isolation
// none.
package wasipy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/python"
)

// Name is the name of the back end.
const Name = "embedded"

// Config is that of a back end.
type Config struct {
	// Worker returns the command of a process that calls [Work] with the
	// given arguments: this program in its hidden role. Without it all
	// interpreters live in this process.
	Worker func(args ...string) *exec.Cmd
	// MaxWorkers bounds the worker processes; zero means a default by the
	// number of processors. As long as there are as many workers as live
	// interpreters, each has one for itself.
	MaxWorkers int
	// CacheDir is where prepared things are kept if a setup does not say;
	// empty means a directory in the user's cache directory.
	CacheDir string
}

// Backend is the embedded back end. It implements [guest.Backend].
type Backend struct {
	cfg Config

	mu     sync.Mutex
	ready  map[string]*prepared // by directory
	closed bool
}

var _ guest.Backend = (*Backend)(nil)

// New returns a back end. Nothing is prepared yet.
func New(cfg Config) *Backend {
	if cfg.MaxWorkers <= 0 {
		cfg.MaxWorkers = min(max(2*runtime.GOMAXPROCS(0), 4), 16)
	}
	return &Backend{cfg: cfg, ready: make(map[string]*prepared)}
}

// Name implements [guest.Backend].
func (b *Backend) Name() string { return Name }

var errClosed = errors.New("the back end is closed")

// cacheDir is where things of a setup are kept.
func (b *Backend) cacheDir(s guest.Setup) (string, error) {
	base := s.CacheDir
	if base == "" {
		base = b.cfg.CacheDir
	}
	if base == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find the user's cache directory: %w", err)
		}
		base = filepath.Join(user, "spool", "sandbox")
	}
	print, err := fingerprint()
	if err != nil {
		return "", err
	}
	return filepath.Join(base, "python-"+Version+"-"+print), nil
}

// Prepare implements [guest.Backend].
func (b *Backend) Prepare(ctx context.Context, s guest.Setup) (guest.Prewarm, error) {
	p, executed, err := b.prepare(ctx, s)
	if err != nil {
		return guest.Prewarm{}, err
	}
	protections, err := b.protections(ctx, s)
	if err != nil {
		return guest.Prewarm{}, err
	}
	pre := guest.Prewarm{Reason: guest.ReasonCached, CacheDir: p.dir, Version: Version, Protections: protections}
	if executed > 0 {
		pre.Executed, pre.Reason, pre.Duration = true, guest.ReasonExecuted, executed
	}
	return pre, nil
}

// at returns what is or will be prepared for a setup.
func (b *Backend) at(s guest.Setup) (*prepared, error) {
	if err := supported(); err != nil {
		return nil, &guest.UnavailableError{Backend: Name, Err: err}
	}
	dir, err := b.cacheDir(s)
	if err != nil {
		return nil, &guest.UnavailableError{Backend: Name, Err: err, Hint: "name a cache directory"}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, errClosed
	}
	p := b.ready[dir]
	if p == nil {
		p = &prepared{dir: dir, turn: make(chan struct{}, 1), cell: newCell(b.cfg, filepath.Join(dir, compiledDir))}
		b.ready[dir] = p
	}
	return p, nil
}

// Wall implements [guest.Backend].
func (b *Backend) Wall(ctx context.Context, s guest.Setup) (guest.Wall, error) {
	if !b.outside(s.Isolation) {
		return guest.Wall{}, nil
	}
	p, err := b.at(s)
	if err != nil {
		return guest.Wall{}, err
	}
	proof, err := p.cell.Proof(ctx)
	if err != nil {
		return guest.Wall{}, err
	}
	w := guest.Wall{Mechanism: proof.Mechanism, Guarantees: proof.Has.Strings(), Why: make(map[string]string)}
	for g, why := range proof.Why {
		w.Why[string(g)] = why
	}
	return w, nil
}

// prepare returns what was prepared in a directory. Only one caller at a time
// does the work; it says how long that took.
func (b *Backend) prepare(ctx context.Context, s guest.Setup) (*prepared, time.Duration, error) {
	p, err := b.at(s)
	if err != nil {
		return nil, 0, err
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	executed, err := p.load(ctx, b.cfg, s.Progress)
	if err != nil {
		return nil, 0, fmt.Errorf("prepare the interpreter: %w", err)
	}
	if err := p.check(s.Packages); err != nil {
		return nil, 0, &guest.UnavailableError{Backend: Name, Err: err, Hint: "the pyodide back end has packages"}
	}
	return p, executed, nil
}

// Open implements [guest.Backend].
func (b *Backend) Open(ctx context.Context, o guest.Options) (guest.Context, error) {
	if _, err := b.protections(ctx, o.Setup); err != nil {
		return nil, err
	}
	p, _, err := b.prepare(ctx, o.Setup)
	if err != nil {
		return nil, err
	}
	if o.Memory <= 0 {
		o.Memory = guest.DefaultMemory
	}
	if o.OpenFiles <= 0 {
		o.OpenFiles = guest.DefaultOpenFiles
	}
	if o.Fuel < 0 {
		o.Fuel = 0
	}
	c := &pyContext{o: o}
	c.boot = contextConfig{
		Boot:   guest.BootConfig{Env: o.Env, Cwd: o.Cwd, Fresh: o.Fresh},
		Memory: uint64(min(o.Memory, maxMemory)), Fuel: o.Fuel, Files: o.OpenFiles,
		Packages: o.Packages, Fresh: o.Fresh,
	}
	if b.outside(o.Isolation) {
		c.runner = &remoteRunner{pool: p.pool, config: c.boot, fs: o.FS}
		return c, nil
	}
	m, err := p.machine(ctx)
	if err != nil {
		return nil, err
	}
	c.runner = &localRunner{machine: m, config: c.boot, fs: m.files(o.FS)}
	return c, nil
}

// outside says whether interpreters of an isolation live in workers.
func (b *Backend) outside(i python.Isolation) bool {
	return b.cfg.Worker != nil && i != python.IsolateNone && canWork
}

// protections lists the protections between a guest and this machine.
func (b *Backend) protections(ctx context.Context, s guest.Setup) ([]string, error) {
	protections := []string{"WebAssembly: a guest has its own memory and no system calls"}
	strict := s.Isolation == python.IsolateStrict
	if !b.outside(s.Isolation) {
		if strict {
			return nil, &guest.UnavailableError{Backend: Name, Err: errors.New("strict isolation needs worker processes, which are not available here")}
		}
		return append(protections, "no other: interpreters run in this process"), nil
	}
	protections = append(protections, "separate processes: interpreters run in workers")
	more, missing := confinement()
	if strict && len(missing) > 0 {
		return nil, &guest.UnavailableError{Backend: Name, Err: fmt.Errorf("this kernel lacks %s", missing[0])}
	}
	protections = append(protections, more...)
	w, err := b.Wall(ctx, s)
	if err != nil {
		return nil, err
	}
	outer, ok := wallText[w.Mechanism]
	if !ok && strict {
		return nil, &guest.UnavailableError{Backend: Name, Err: errors.New("strict isolation: this machine allows neither namespaces nor Landlock"), Hint: "without strict isolation the other protections still apply"}
	}
	if ok {
		protections = append(protections, outer)
	}
	return protections, nil
}

// wallText says what surrounds workers, by the mechanism.
var wallText = map[string]string{
	isolate.Namespaces: "namespaces and Landlock: a worker has no network and no other processes, and reads only its own program",
	isolate.Landlock:   "Landlock: a worker reads only its own program",
}

// Doctor implements [guest.Backend].
func (b *Backend) Doctor(ctx context.Context) []guest.Finding {
	var found []guest.Finding
	add := func(name string, ok bool, format string, args ...any) {
		found = append(found, guest.Finding{Name: name, OK: ok, Text: fmt.Sprintf(format, args...)})
	}
	if err := supported(); err != nil {
		add("platform", false, "%v", err)
		return found
	}
	add("platform", true, "CPython %s for WASI runs compiled to machine code", Version)
	dir, err := b.cacheDir(guest.Setup{})
	switch {
	case err != nil:
		add("cache", false, "%v", err)
	case validStamp(dir):
		add("cache", true, "prepared in %s", dir)
	default:
		add("cache", true, "not prepared yet; the first use prepares it in %s", dir)
	}
	if !b.outside(python.IsolateBest) {
		add("workers", false, "interpreters run in this process")
		return found
	}
	add("workers", true, "interpreters run in up to %d worker processes", b.cfg.MaxWorkers)
	protections, missing := confinement()
	for _, w := range protections {
		add("protection", true, "%s", w)
	}
	for _, m := range missing {
		add("protection", false, "this kernel lacks %s", m)
	}
	w, err := b.Wall(ctx, guest.Setup{})
	switch outer, ok := wallText[w.Mechanism]; {
	case err != nil:
		add("isolation", false, "%v", err)
	case ok:
		add("isolation", true, "%s; guarantees %s", outer, strings.Join(w.Guarantees, " "))
	default:
		add("isolation", false, "this machine allows neither namespaces nor Landlock; guarantees %s", strings.Join(w.Guarantees, " "))
	}
	return found
}

// Close implements [guest.Backend].
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	ready := b.ready
	b.ready = nil
	b.mu.Unlock()
	for _, p := range ready {
		p.turn <- struct{}{} // wait for a preparation that is under way
		p.close()
		<-p.turn
	}
	return nil
}
