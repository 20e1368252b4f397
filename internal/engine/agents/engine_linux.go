package agents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
	"github.com/spool-run/spool/internal/privatedir"
)

// Engine runs coding agents.
type Engine struct {
	opts     Options
	launcher *launch.Launcher
	locks    *sessions.Locks
	ledger   *sessions.Ledger

	sandboxes *isolate.Sandboxes

	mu       sync.Mutex
	closed   bool
	sessions map[*session]struct{}
	loops    sync.WaitGroup // added to only while not closed
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

// New returns an engine. It must be closed, which ends whatever it started.
func New(o Options) (*Engine, error) {
	if o.Dir == "" {
		o.Dir = DefaultDir()
		if err := privatedir.Make(o.Dir); err != nil {
			return nil, fmt.Errorf("prepare to start agents: %w", err)
		}
	}
	locks, err := sessions.NewLocks(filepath.Join(o.Dir, "locks"))
	if err != nil {
		return nil, err
	}
	ledger, err := sessions.NewLedger(filepath.Join(o.Dir, "usage"))
	if err != nil {
		return nil, err
	}
	launcher, err := launch.New(launch.Options{Owner: o.Owner, Mode: o.Tree})
	if err != nil {
		return nil, fmt.Errorf("prepare to start agents: %w", err)
	}
	return &Engine{opts: o, launcher: launcher, locks: locks, ledger: ledger, sandboxes: isolate.New(launcher), sessions: make(map[*session]struct{})}, nil
}

// Start begins a conversation. The agent's process starts with the first
// prompt; that it can is checked now.
func (e *Engine) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: context.Cause(ctx)}
	}
	if err := checkDir(spec.Cwd); err != nil {
		return nil, err
	}
	if spec.Cwd == "" {
		dir, err := os.Getwd()
		if err != nil {
			return nil, &spool.StartError{Reason: engine.StartBadCwd, Err: err}
		}
		spec.Cwd = dir
	}
	s, err := prepare(&spec, &e.opts, out)
	if err != nil {
		return nil, err
	}
	env, err := environment(&spec, &e.opts, s.config, s.agent)
	if err != nil {
		return nil, invalid(err)
	}
	if name := programOf(s.config, s.agent); name == "" {
		return nil, invalid(errors.New("no command was given"))
	} else if file, err := environ.LookProgram(name, spec.Cwd, env); err != nil || !executable(file, spec.Cwd) {
		return nil, missing(s.config, s.agent)
	}
	if err := e.launcher.TryLimits(spec.Limits.MemoryBytes, spec.Limits.CPUs); err != nil {
		return nil, &spool.StartError{Reason: engine.StartUnsupported, Hint: engine.NoLimitHint, Err: err}
	}
	if err := isolate.LimitFiles(new(launch.Command), nil, spec.Limits.OpenFiles); err != nil {
		return nil, err
	}
	overlay := isolate.OverlayOf(&spec, out)
	if s.isolation, err = e.isolate(s, &spec, env, overlay); err != nil {
		return nil, err
	}
	s.lock.locks, s.ledger = e.locks, e.ledger
	s.overlay = overlay != nil
	if placer, ok := out.(engine.Placer); ok {
		s.workspaceDir = placer.WorkspaceDir()
	}
	hosts := s.hostAsks(&spec)
	s.spawn = func(c talk.Command) (child, error) { return e.spawn(c, &spec, env, overlay, s.tell, hosts) }

	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, &spool.StartError{Reason: engine.StartOther, Err: spool.ErrClosed}
	}
	e.sessions[s] = struct{}{}
	e.loops.Go(func() {
		s.loop()
		e.mu.Lock()
		delete(e.sessions, s)
		e.mu.Unlock()
	})
	return s, nil
}

func executable(file, cwd string) bool {
	if !filepath.IsAbs(file) {
		file = filepath.Join(cwd, file)
	}
	info, err := os.Stat(file)
	return err == nil && !info.IsDir() && info.Mode()&0o111 != 0
}

// spawn starts a process of an agent. Notices about the network of an isolated one go
// to tell, and asks about hosts to hosts.
func (e *Engine) spawn(c talk.Command, spec *spool.Spec, env []string, o *isolate.Overlay, tell func(spool.Notice), hosts isolate.AskFunc) (child, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("start agent: no command")
	}
	env = environ.Overlay(env, c.Env)
	for _, list := range [][]string{c.Argv, env} {
		for _, s := range list {
			if strings.IndexByte(s, 0) >= 0 {
				return nil, errors.New("start agent: a NUL byte cannot be passed to a program")
			}
		}
	}
	file, err := environ.LookProgram(c.Argv[0], spec.Cwd, env)
	if err != nil {
		return nil, fmt.Errorf("find program %q: %w", c.Argv[0], err)
	}
	pids := spec.Limits.Pids
	if pids == 0 && e.launcher.Guarantees().Pids {
		pids = limits.DefaultPids
	}
	cmd := launch.Command{Path: file, Argv: c.Argv, Env: env, Dir: spec.Cwd, Pids: pids, Memory: spec.Limits.MemoryBytes, CPUs: spec.Limits.CPUs}
	lease, err := e.sandboxes.StartOverlay(spec, cmp.Or(pids, limits.DefaultPids), &cmd, o)
	if err != nil {
		return nil, err
	}
	var p *osChild
	if err = isolate.LimitFiles(&cmd, lease, spec.Limits.OpenFiles); err == nil {
		p, err = startProcess(e.launcher, cmd, c.Stdin, c.Open)
	}
	if err != nil {
		if lease != nil {
			lease.Release()
		}
		return nil, fmt.Errorf("start %s: %w", file, err)
	}
	p.lease, p.tell = lease, tell
	if lease != nil && lease.Network() != nil {
		lease.Network().Attach(tell, hosts)
	}
	return p, nil
}

// closeTime is how long the runs of an engine that closes may take to end.
const closeTime = forceTime + drainTime + 5*time.Second

// Close ends every run and everything the agents started.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.loops.Wait()
		return nil
	}
	e.closed = true
	left := make([]*session, 0, len(e.sessions))
	for s := range e.sessions {
		left = append(left, s)
	}
	e.mu.Unlock()
	for _, s := range left {
		_ = s.Control(context.Background(), spool.Control{Op: spool.ControlKill}) // fails only if it has ended
	}
	timeout := time.NewTimer(closeTime)
	defer timeout.Stop()
	for _, s := range left {
		select {
		case <-s.done:
		case <-timeout.C:
			return fmt.Errorf("agent process %d does not end", s.Pid())
		}
	}
	e.loops.Wait()
	e.sandboxes.Close()
	return e.launcher.Close()
}
