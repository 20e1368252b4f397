package launch

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/failpoint"
)

// Tree is a leader and everything that grew from it. Its methods are safe for
// concurrent use, and none of them can hit a process that is not part of it.
type Tree struct {
	l     *Launcher
	pid   int
	pidfd int     // closed by Reap
	slot  *slot   // in a control group,
	grown *growth // or held by a walk

	mu       sync.Mutex // also held while signalling, so that no pid is reused meanwhile
	reaped   bool
	released bool
}

// Pid is the leader's process id.
func (t *Tree) Pid() int { return t.pid }

// PidFD is a descriptor that becomes readable when the leader has ended. It
// is valid until [Tree.Reap].
func (t *Tree) PidFD() int { return t.pidfd }

// Group is the directory of the tree's control group, or "" if there is none.
func (t *Tree) Group() string {
	if t.slot == nil {
		return ""
	}
	return t.slot.dir
}

// Reap collects the leader's exit status, waiting for it if need be, and
// closes the pidfd. It must be called once.
func (t *Tree) Reap() (unix.WaitStatus, error) {
	fail := failpoint.Inject("launch.reap")
	var info unix.Siginfo
	for { // outside the lock, and without reaping yet
		err := unix.Waitid(unix.P_PIDFD, t.pidfd, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	var status unix.WaitStatus
	t.mu.Lock()
	_, err := unix.Wait4(t.pid, &status, 0, nil)
	t.reaped = true
	_ = unix.Close(t.pidfd)
	t.mu.Unlock()
	if err = errors.Join(err, fail); err == nil {
		err = failpoint.Inject("launch.reaped")
	}
	if t.grown != nil {
		t.l.walk.reaped(t.grown)
	}
	if err != nil {
		return 0, fmt.Errorf("wait for process %d: %w", t.pid, err)
	}
	return status, nil
}

// SignalGroup signals the leader's process group. Once the leader is reaped
// the group's number may be somebody else's: then it is [os.ErrProcessDone].
func (t *Tree) SignalGroup(sig unix.Signal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reaped {
		return os.ErrProcessDone
	}
	if err := unix.Kill(-t.pid, sig); err != nil {
		return fmt.Errorf("signal process group %d: %w", t.pid, err)
	}
	return nil
}

// SignalAll signals every member, whatever its process group.
func (t *Tree) SignalAll(sig unix.Signal) error {
	live, err := t.list()
	for _, p := range live {
		signalProc(p, sig)
	}
	return err
}

// list returns the live members.
func (t *Tree) list() ([]proc, error) {
	if t.grown != nil {
		return t.l.walk.look(t.grown)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released {
		return nil, nil
	}
	pids, err := t.slot.pidList()
	var live []proc
	for _, pid := range pids {
		if p, err := readProc(pid); err == nil && !p.dead() {
			live = append(live, p)
		}
	}
	return live, err
}

// Count says how many members are alive.
func (t *Tree) Count() (Members, error) {
	var m Members
	if t.grown != nil {
		live, err := t.l.walk.look(t.grown)
		for _, p := range live {
			m.add(p.pgrp == t.pid)
		}
		return m, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released {
		return m, nil
	}
	pids, err := t.slot.pidList()
	for _, pid := range pids {
		if pgrp, err := unix.Getpgid(pid); err == nil {
			m.add(pgrp == t.pid)
		}
	}
	return m, err
}

func (m *Members) add(group bool) {
	if group {
		m.Group++
	} else {
		m.Escaped++
	}
}

// Kill ends every member. A member may take a moment to be gone; with a walk,
// an error says that some are not.
func (t *Tree) Kill() error {
	if t.grown != nil {
		return t.l.walk.kill(t.grown)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released { // the group may be another tree's by now
		return nil
	}
	if err := t.slot.kill(); err != nil {
		return fmt.Errorf("kill control group: %w", err)
	}
	return nil
}

// Release lets go of the tree once the leader is reaped. Members that are
// still alive live on, until the launcher is closed.
func (t *Tree) Release() {
	t.mu.Lock()
	done := t.released
	t.released = true
	t.mu.Unlock()
	switch {
	case done:
	case t.grown != nil:
		t.l.walk.drop(t.grown)
	default:
		t.l.groups.release(t.slot)
	}
}
