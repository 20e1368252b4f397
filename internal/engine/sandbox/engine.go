package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// Options configure an engine.
type Options struct {
	// Backends are made when first used, by name.
	Backends map[string]func() (guest.Backend, error)
	// CacheDir is where prepared things are kept; empty lets the back ends
	// choose.
	CacheDir string
}

// Engine runs sandboxes.
type Engine struct {
	opts Options

	mu       sync.Mutex
	closed   bool
	backends map[string]guest.Backend
	sessions map[*session]struct{}
	wg       sync.WaitGroup // of sessions; added to only while not closed
}

var _ interface {
	engine.Engine
	engine.Isolator
} = (*Engine)(nil)

// New returns an engine. It must be closed.
func New(o Options) (*Engine, error) {
	if len(o.Backends) == 0 {
		return nil, errors.New("a sandbox engine needs a back end")
	}
	return &Engine{opts: o, backends: make(map[string]guest.Backend), sessions: make(map[*session]struct{})}, nil
}

// startWait is how long Start waits for a preparation without progress. A
// preparation that fails does so early.
const startWait = 500 * time.Millisecond

// Start opens a context. It returns when that is ready, or when its
// preparation takes long; notices then report its progress.
func (e *Engine) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	config, err := decode(&spec)
	if err != nil {
		return nil, &spool.StartError{Reason: engine.StartInvalid, Err: err}
	}
	backend, err := e.backend(config.Backend)
	if err != nil {
		return nil, startError(err)
	}
	cwd := spec.Cwd
	if cwd == "" {
		cwd = python.SandboxCwd
	}
	setup := guest.Setup{
		Dist: config.Dist, Wheels: config.Wheels, Packages: config.Packages, Node: config.Node, JSHeap: config.JSHeapBytes,
		CacheDir: e.opts.CacheDir, Isolation: config.Isolation,
	}
	isolated, err := isolation(ctx, backend, setup, &spec, config)
	if err != nil {
		return nil, err
	}
	tree, err := newFiles(config, cwd)
	if err != nil {
		return nil, filesError(err)
	}
	s := newSession(e, &spec, config, tree, out)
	s.isolation, setup.Progress = isolated, s.progress
	s.options = guest.Options{
		Setup: setup,
		FS:    tree.tree, Cwd: cwd, Env: maps.Clone(spec.Env), Fresh: config.Fresh,
		Memory: config.Limits.MemoryBytes, Fuel: config.Limits.Fuel, OpenFiles: config.Limits.OpenFiles,
	}
	s.backend = backend
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, errors.Join(&spool.StartError{Reason: engine.StartOther, Err: spool.ErrClosed}, tree.tree.Close())
	}
	e.sessions[s] = struct{}{}
	e.wg.Go(func() {
		s.run()
		e.mu.Lock()
		delete(e.sessions, s)
		e.mu.Unlock()
	})
	e.mu.Unlock()
	return s, s.begun(ctx)
}

// backend returns the back end of that name.
func (e *Engine) backend(name string) (guest.Backend, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ok := e.backends[name]; ok {
		return b, nil
	}
	if e.closed {
		return nil, spool.ErrClosed
	}
	makeIt, ok := e.opts.Backends[name]
	if !ok {
		return nil, &guest.UnavailableError{Backend: name, Err: errors.New("not part of this program")}
	}
	b, err := makeIt()
	if err != nil {
		return nil, err
	}
	e.backends[name] = b
	return b, nil
}

// Close ends every run and closes the back ends.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.wg.Wait()
		return nil
	}
	e.closed = true
	left := slices.Collect(maps.Keys(e.sessions))
	e.mu.Unlock()
	for _, s := range left {
		s.end(end{killed: true})
	}
	e.wg.Wait()
	var errs []error
	for _, b := range e.backends {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// startError turns the error of a back end into a [spool.StartError].
func startError(err error) error {
	var start *spool.StartError
	var unavailable *guest.UnavailableError
	switch {
	case errors.As(err, &start):
		return err
	case errors.As(err, &unavailable):
		return &spool.StartError{Reason: engine.StartUnsupported, Hint: unavailable.Hint, Err: err}
	}
	return &spool.StartError{Reason: engine.StartOther, Err: err}
}

func filesError(err error) error {
	reason := engine.StartInvalid
	if errors.Is(err, vfs.ENOSPC) {
		reason = engine.StartLimit
	}
	return &spool.StartError{Reason: reason, Err: fmt.Errorf("make the sandbox's files: %w", err)}
}
