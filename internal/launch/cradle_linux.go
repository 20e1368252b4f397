package launch

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrNoCradle says that only processes this launcher starts itself can be held.
var ErrNoCradle = errors.New("processes that others fork cannot be held without control groups")

// Cradle is a control group that waits for its leader, which is not started
// from here: a child of ours forks it, as our child, into the group. It must
// be adopted or abandoned.
type Cradle struct {
	l     *Launcher
	slot  *slot
	dir   int
	tasks []int
}

// Cradle prepares a group for a leader that somebody forks for us.
func (l *Launcher) Cradle(pids int) (*Cradle, error) {
	if l.groups == nil {
		return nil, ErrNoCradle
	}
	if pids > 0 && !l.Guarantees().Pids {
		return nil, ErrNoPidsLimit
	}
	s, err := l.groups.acquire(pids)
	if err != nil {
		return nil, fmt.Errorf("acquire control group: %w", err)
	}
	c := &Cradle{l: l, slot: s, dir: -1}
	if c.dir, err = unix.Open(s.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		c.Abandon()
		return nil, fmt.Errorf("open control group: %w", err)
	}
	if s.pids != "" && s.limit > 0 { // a v1 group cannot be cloned into
		fd, err := unix.Open(filepath.Join(s.pids, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			c.Abandon()
			return nil, fmt.Errorf("open pids group: %w", err)
		}
		c.tasks = append(c.tasks, fd)
	}
	return c, nil
}

// Group is the descriptor of the group to clone into.
func (c *Cradle) Group() int { return c.dir }

// Tasks are descriptors of files to which the leader writes "0" before
// anything else, to enter groups that cannot be cloned into.
func (c *Cradle) Tasks() []int { return c.tasks }

// Adopt takes the process, which must be a child of ours that nobody waits
// for, as the leader of the tree in the cradle.
func (c *Cradle) Adopt(pid int) (*Tree, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open pidfd of %d: %w", pid, err)
	}
	c.closeFiles()
	return &Tree{l: c.l, pid: pid, pidfd: fd, slot: c.slot}, nil
}

// Abandon ends whoever is in the group, now or later: it is not used again.
func (c *Cradle) Abandon() {
	c.closeFiles()
	_ = c.slot.kill() // else it ends with the launcher
	c.l.groups.release(c.slot)
}

func (c *Cradle) closeFiles() {
	for _, fd := range append(c.tasks, c.dir) {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	c.dir, c.tasks = -1, nil
}
