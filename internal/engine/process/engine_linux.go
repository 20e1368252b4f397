package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/gopool"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/reactor"
	"github.com/spool-run/spool/internal/spare"
)

// Engine runs processes.
type Engine struct {
	opts       Options
	launcher   *launch.Launcher
	null       int             // /dev/null, the standard input of processes without one
	forceAfter time.Duration   // from a kill until open streams are closed
	poller     *reactor.Poller // of the pumps

	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{}
	pumps    sync.WaitGroup     // added to only while not closed
	pool     gopool.Pool        // runs the pumps
	spares   spare.Pool[*files] // pipes for processes without standard input

	sandboxes *isolate.Sandboxes
}

var _ interface {
	engine.Engine
	engine.Isolator
	engine.Workspacer
} = (*Engine)(nil)

// Isolates implements [engine.Isolator].
func (*Engine) Isolates() {}

const (
	// forceCloseAfter is how long after a kill the streams may stay open. A process
	// of a busy machine takes seconds to end.
	forceCloseAfter = 10 * time.Second
	// killTime bounds the wait for a kill of the whole tree.
	killTime = 30 * time.Second
)

// New returns an engine. The caller must close it, which kills the processes it
// started.
func New(o Options) (*Engine, error) {
	launcher, err := launch.New(launch.Options{Owner: o.Owner, Mode: o.Tree, Spares: o.SpareGroups})
	if err != nil {
		return nil, fmt.Errorf("prepare to start processes: %w", err)
	}
	null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", os.DevNull, err), launcher.Close())
	}
	poller, err := reactor.NewPoller()
	if err != nil {
		return nil, errors.Join(err, unix.Close(null), launcher.Close())
	}
	if o.Environ == nil {
		o.Environ = os.Environ()
	}
	e := &Engine{opts: o, launcher: launcher, null: null, poller: poller, forceAfter: forceCloseAfter, sessions: make(map[*session]struct{}), sandboxes: isolate.New(launcher)}
	e.spares.Low, e.spares.High = o.Spares/2, o.Spares
	e.spares.Make = func() (*files, error) { return openPipes(false, null) }
	e.spares.Discard = (*files).close
	return e, nil
}

// Guarantees returns what the engine can promise on this machine.
func (e *Engine) Guarantees() Guarantees { return e.launcher.Guarantees() }

// Owner returns the name by which [launch.SweepOwner] finds the processes of this
// engine if its process dies.
func (e *Engine) Owner() string { return e.launcher.Owner() }

// Start starts a process. It returns once the program is executing.
func (e *Engine) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
	}
	env, err := environ.Make(spec.EnvPolicy, e.opts.Environ, spec.Env)
	if err != nil {
		return nil, invalid(err)
	}
	if err := checkSpec(&spec, env); err != nil {
		return nil, err
	}
	bounds := limits.Merge(spec.Limits, e.opts.Limits, limits.Default)
	if spec.Limits.Pids == 0 && !e.launcher.Guarantees().Pids {
		bounds.Pids = 0
	}
	program, err := environ.LookProgram(spec.Argv[0], spec.Cwd, env)
	if err != nil {
		return nil, startError(spec.Argv[0], &spec, err)
	}
	argv := spec.Argv
	if spec.Arg0 != "" {
		argv = append([]string{spec.Arg0}, argv[1:]...)
	}

	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, &spool.StartError{Reason: engine.StartOther, Err: spool.ErrClosed}
	}
	e.pumps.Add(1) // from here on Close waits for this start
	e.mu.Unlock()

	c := launch.Command{Path: program, Argv: argv, Env: env, Dir: spec.Cwd, TTY: spec.TTY != nil,
		Pids: bounds.Pids, Memory: bounds.MemoryBytes, CPUs: bounds.CPUs}
	var lease *isolate.Lease
	overlay := isolate.OverlayOf(&spec, out)
	if spec.Isolation != nil || overlay != nil {
		if lease, err = e.isolate(&spec, &c, overlay); err != nil {
			e.pumps.Done()
			return nil, err
		}
	}
	var s *session
	if err = isolate.LimitFiles(&c, lease, bounds.OpenFiles); err == nil {
		s, err = e.start(&spec, c, bounds, out)
	}
	if err != nil {
		if lease != nil {
			lease.Release()
		}
		e.pumps.Done()
		return nil, err
	}
	s.lease, s.isolation, s.overlay = lease, e.sandboxes.Report(&spec, lease), overlay != nil
	if lease != nil && lease.Network() != nil {
		s.attachNetwork(lease.Network(), spec.Isolation.AskHosts)
	}
	e.mu.Lock()
	e.sessions[s] = struct{}{}
	closed := e.closed
	e.mu.Unlock()
	if closed { // Close did not see this session
		_ = s.kill()
	}
	s.pump.begin(e.resume(s))
	return s, nil
}

// resume returns what goes on with the pump of a session.
func (e *Engine) resume(s *session) func() {
	return func() { e.pool.Go(func() { e.pump(s) }) }
}

// pump runs the pump of a session until it rests or has ended.
func (e *Engine) pump(s *session) {
	if !s.pump.run(e.resume(s)) {
		return
	}
	defer e.pumps.Done()
	runtime.Gosched() // callers of Wait run first
	e.mu.Lock()
	delete(e.sessions, s)
	e.mu.Unlock()
	s.tree.Release()
	if s.lease != nil {
		s.lease.Release()
	}
}

func (e *Engine) start(spec *spool.Spec, c launch.Command, bounds spool.Limits, out engine.Sink) (*session, error) {
	var f *files
	var err error
	var size spool.Size
	switch {
	case spec.TTY != nil:
		size = engine.TerminalSize(spec)
		if f, err = openPTY(size); err != nil {
			return nil, ptyError(err)
		}
	case spec.LineBuffered:
		if f, err = openLineBuffered(spec.Stdin, e.null); err != nil {
			return nil, ptyError(err)
		}
	case !spec.Stdin:
		f, _ = e.spares.TakeFill()
	}
	if f == nil {
		if f, err = openPipes(spec.Stdin, e.null); err != nil {
			return nil, pipeError(err)
		}
	}
	s := &session{engine: e, limits: bounds, input: input{tty: c.TTY, fd: f.stdin}, size: size, actual: size, done: make(chan struct{})}
	s.pump = newPump(s, f, out)
	c.Files = f.child
	s.tree, err = e.launcher.Start(c)
	f.closeChildEnds()
	if err == nil {
		s.pump.watch(s.tree.PidFD())
		return s, nil
	}
	s.pump.close()
	s.input.close()
	return nil, startError(c.Path, spec, err)
}

// Close kills every process that the engine started, including those that outlived
// their run, and waits for the runs to end. It returns an error if a process
// cannot be killed.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.pumps.Wait()
		return nil
	}
	e.closed = true
	left := make([]*session, 0, len(e.sessions))
	for s := range e.sessions {
		left = append(left, s)
	}
	e.mu.Unlock()

	var errs []error
	for _, s := range left {
		errs = append(errs, s.kill())
	}
	timeout := time.NewTimer(2*e.forceAfter + time.Second)
	defer timeout.Stop()
	for _, s := range left {
		select {
		case <-s.done:
		case <-timeout.C:
			return errors.Join(append(errs, fmt.Errorf("process %d does not end", s.Pid()))...)
		}
	}
	e.pumps.Wait()
	e.pool.Wait()
	e.spares.Close()
	e.sandboxes.Close()
	e.poller.Close()
	errs = append(errs, e.launcher.Close(), unix.Close(e.null))
	return errors.Join(errs...)
}
