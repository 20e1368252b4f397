package kernel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/reactor"
)

// Engine runs Python interpreters.
type Engine struct {
	opts     Options
	launcher *launch.Launcher
	null     int
	// lifePipe is a pipe without data: when this process dies its end
	// closes, and the system kills every interpreter that has the other.
	lifePipe    [2]int
	starting    chan struct{}   // holds one element per start
	poller      *reactor.Poller // of the loops
	reapTimeout time.Duration   // from a kill of an interpreter to giving it up
	// loseInterrupts has the interpreters get no signal with the first interrupt of a
	// turn, as if each had come at a moment when it is not noticed. Tests set it.
	loseInterrupts bool

	sandboxes *isolate.Sandboxes

	mu                 sync.Mutex
	closed             bool
	sessions           map[*session]struct{}
	byID               map[spool.RunID]*session
	zygotes            map[string]*zygote
	resolvedCandidates map[string]candidate // interpreters by how they were found
	work               sync.WaitGroup       // sessions, zygotes, starts; added to only while not closed
}

var _ interface {
	engine.Engine
	engine.Isolator
	engine.Workspacer
} = (*Engine)(nil)

// Isolates implements [engine.Isolator].
func (*Engine) Isolates() {}

// HasWorkspaces implements [engine.Workspacer].
func (*Engine) HasWorkspaces() {}

// maxStarting bounds how many starts are under way at once: each blocks a
// thread.
const maxStarting = 16

// closeTimeout bounds how long Close waits for runs to end.
const closeTimeout = 30 * time.Second

// New returns an engine. The caller must close it, which kills its interpreters.
func New(o Options) (*Engine, error) {
	launcher, err := launch.New(launch.Options{Owner: o.Owner, Mode: o.Tree})
	if err != nil {
		return nil, fmt.Errorf("prepare to start interpreters: %w", err)
	}
	e := &Engine{
		opts: o, launcher: launcher, null: -1, lifePipe: [2]int{-1, -1}, reapTimeout: reapTimeout,
		starting: make(chan struct{}, maxStarting), sandboxes: isolate.New(launcher),
		sessions: make(map[*session]struct{}), byID: make(map[spool.RunID]*session),
		zygotes: make(map[string]*zygote), resolvedCandidates: make(map[string]candidate),
	}
	if e.null, err = unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", os.DevNull, err), launcher.Close())
	}
	if err := unix.Pipe2(e.lifePipe[:], unix.O_CLOEXEC); err != nil {
		_ = unix.Close(e.null)
		return nil, errors.Join(fmt.Errorf("make pipe: %w", err), launcher.Close())
	}
	if e.poller, err = reactor.NewPoller(); err != nil {
		return nil, errors.Join(err, unix.Close(e.null), unix.Close(e.lifePipe[0]), unix.Close(e.lifePipe[1]), launcher.Close())
	}
	if e.opts.Environ == nil {
		e.opts.Environ = os.Environ()
	}
	return e, nil
}

// Owner returns the name by which [launch.SweepOwner] finds the processes of this
// engine if its process dies.
func (e *Engine) Owner() string { return e.launcher.Owner() }

func invalid(err error) error { return &spool.StartError{Reason: engine.StartInvalid, Err: err} }

// Start starts an interpreter. It returns once the interpreter accepts cells.
func (e *Engine) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	if ctx.Err() != nil {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
	}
	l, limits, err := e.makeLaunchSpec(&spec)
	if err != nil {
		return nil, invalid(err)
	}
	l.overlay = isolate.OverlayOf(&spec, out)
	if err := e.isolate(l, &spec, &limits); err != nil {
		return nil, err
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, &spool.StartError{Reason: engine.StartOther, Err: spool.ErrClosed}
	}
	e.work.Add(1) // from here on Close waits for this start
	e.mu.Unlock()

	var p *interpreter
	if l.cfg.Fork != "" {
		p, err = e.forkLive(ctx, l)
	} else {
		p, err = e.startInterpreter(ctx, l)
	}
	if err == nil {
		var s *session
		if s, err = newSession(e, &spec, l, limits, p, out); err == nil {
			e.runSession(s)
			return s, nil
		}
		p.discard()
	}
	e.work.Done()
	var se *spool.StartError
	if !errors.As(err, &se) {
		err = &spool.StartError{Reason: engine.StartOther, Err: err}
	}
	return nil, err
}

// runSession runs the session.
func (e *Engine) runSession(s *session) {
	e.mu.Lock()
	e.sessions[s] = struct{}{}
	if s.id != "" {
		e.byID[s.id] = s
	}
	closed := e.closed
	e.mu.Unlock()
	if closed { // Close did not see this session
		s.post(request{control: &spool.Control{Op: spool.ControlKill}})
	}
	go func() {
		defer e.work.Done()
		s.loop()
		e.mu.Lock()
		delete(e.sessions, s)
		if e.byID[s.id] == s {
			delete(e.byID, s.id)
		}
		e.mu.Unlock()
	}()
}

// makeLaunchSpec checks a spec and returns how to start its interpreter.
func (e *Engine) makeLaunchSpec(spec *spool.Spec) (*launchSpec, spool.Limits, error) {
	cfg, err := parseConfig(spec.Config)
	if err != nil {
		return nil, spool.Limits{}, err
	}
	if len(spec.Argv) > 0 {
		return nil, spool.Limits{}, errors.New("a kernel takes no arguments: send it cells")
	}
	if spec.TTY != nil {
		return nil, spool.Limits{}, errors.New("a kernel has no terminal")
	}
	if err := limits.Check(&spec.Limits); err != nil {
		return nil, spool.Limits{}, err
	}
	bounds := limits.Merge(spec.Limits, e.opts.Limits, limits.Default)
	if spec.Limits.Pids == 0 && !e.launcher.Guarantees().Pids {
		bounds.Pids = 0
	}
	env, err := environment(spec, e.opts.Environ, cfg.EnvAllow)
	if err != nil {
		return nil, bounds, err
	}
	cwd := spec.Cwd
	if cwd == "" {
		if cwd, err = os.Getwd(); err != nil {
			return nil, bounds, fmt.Errorf("find working directory: %w", err)
		}
	}
	if cwd, err = filepath.Abs(cwd); err != nil {
		return nil, bounds, fmt.Errorf("find working directory: %w", err)
	}
	l := &launchSpec{cfg: cfg, cwd: cwd, sameDir: spec.Cwd == "", env: env, pids: bounds.Pids, memory: bounds.MemoryBytes, cpus: bounds.CPUs, files: bounds.OpenFiles, own: dict{}, limits: dict{}}
	for name, value := range spec.Env {
		if value != "" && value == string(spec.ID) {
			l.own[name] = value
		}
	}
	if cfg.Fork != "" && l.limited() {
		return nil, bounds, errors.New("a fork of a live run cannot have limits of memory, CPUs or open files")
	}
	if cfg.MemoryBytes > 0 {
		l.limits["RLIMIT_DATA"] = cfg.MemoryBytes
	}
	if cfg.CPUMs > 0 {
		l.limits["RLIMIT_CPU"] = (cfg.CPUMs + 999) / 1000 // in whole seconds
	}
	return l, bounds, nil
}

func candidateKey(c candidate, l *launchSpec) string {
	info, err := os.Stat(c.path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(c.path, "\x00", info.ModTime().UnixNano(), "\x00", l.cwd, "\x00", environ.Get(l.env, "PYENV_VERSION"))
}

// maxResolved bounds how many interpreters are remembered.
const maxResolved = 256

// resolved returns the interpreter that a candidate turned out to be.
func (e *Engine) resolved(c candidate, l *launchSpec) (candidate, bool) {
	key := candidateKey(c, l)
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.resolvedCandidates[key]
	return known, ok && key != "" && executable(known.path) == nil
}

// remember remembers that a candidate works and what it is.
func (e *Engine) remember(c candidate, l *launchSpec, p *interpreter) {
	key := candidateKey(c, l)
	if key == "" {
		return
	}
	known := c.resolvedTo(p.executable)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.resolvedCandidates) >= maxResolved {
		clear(e.resolvedCandidates)
	}
	e.resolvedCandidates[key] = known
}

// Close kills every interpreter and waits for the runs to end. It returns an error
// if an interpreter cannot be killed.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.work.Wait()
		return nil
	}
	e.closed = true
	for s := range e.sessions {
		s.post(request{control: &spool.Control{Op: spool.ControlKill}})
	}
	zygotes := slices.Collect(maps.Values(e.zygotes))
	e.mu.Unlock()
	for _, z := range zygotes {
		e.dropZygote(z)
	}
	ended := make(chan struct{})
	go func() { // ends with the last session, zygote or start
		e.work.Wait()
		close(ended)
	}()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-ended:
	case <-timeout.C:
		return errors.New("some interpreters did not end")
	}
	e.sandboxes.Close()
	e.poller.Close()
	return errors.Join(e.launcher.Close(), unix.Close(e.null), unix.Close(e.lifePipe[0]), unix.Close(e.lifePipe[1]))
}
