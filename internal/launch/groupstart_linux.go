package launch

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/forkexec"
)

// tryStarter has later starts made by a starter, if it works here. That takes longer than a
// start.
func (g *groups) tryStarter(starter *forkexec.Starter) {
	dir, err := unix.Open(g.tree, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, _, err = starter.Start(&forkexec.Program{Path: noProgram, Argv: []string{"spool-probe"}, Group: dir})
		_ = unix.Close(dir)
	}
	if err != syscall.ENOENT {
		_ = starter.Close()
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.starter = starter
}

// start starts a command in the group.
func (g *groups) start(s *slot, c *Command, attr *syscall.ProcAttr) (pid int, err error) {
	g.mu.Lock()
	starter := g.starter
	g.mu.Unlock()
	if c.Fork == nil && starter != nil {
		pid, *attr.Sys.PidFD, err = g.startFast(starter, s, c)
		if !errors.Is(err, forkexec.ErrUnsupported) {
			return pid, err
		}
	}
	fork := c.Fork
	if fork == nil {
		fork = syscall.ForkExec
	}
	return g.fork(s, c.Path, c.Argv, attr, fork, c.On)
}

// startFast starts a command in the group with a starter. The child enters the groups of v1
// hierarchies itself.
func (g *groups) startFast(starter *forkexec.Starter, s *slot, c *Command) (pid, pidfd int, err error) {
	in, err := g.openFiles(s)
	if err != nil {
		return 0, -1, fmt.Errorf("open control group: %w", err)
	}
	defer g.leaveOpen(s)
	p := forkexec.Program{Path: c.Path, Argv: c.Argv, Env: c.Env, Dir: c.Dir, Files: c.Files, TTY: c.TTY, Group: in.dir}
	if len(s.bounds.groups) > 0 {
		enter, _, closeAll, err := s.bounds.files()
		if err != nil {
			return 0, -1, fmt.Errorf("open control group: %w", err)
		}
		defer closeAll()
		p.Enter = enter
	}
	if s.pids != "" && s.limit > 0 {
		p.Enter = append(p.Enter, in.tasks)
	}
	return starter.Start(&p)
}
