package launch

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
)

// Tree is a leader and all its descendants. Its methods are safe for concurrent
// use and never affect a process outside the tree.
type Tree struct {
	l      *Launcher
	pid    int
	pidfd  int                                       // closed by Reap
	slot   *slot                                     // the control group, or nil
	search *treeSearch                               // the state of the search, or nil
	kill   func()                                    // called first by Kill, or nil
	signal func(sig syscall.Signal, to Target) error // in place of the kernel, or nil
	own    bool                                      // the leader began a session, so all sessions of the tree are its own

	mu       sync.Mutex // also held during a signal, so that no pid is reused
	reaped   bool
	released bool
	strays   int  // found outside of the control group, by Kill
	alone    bool // Kill found no process but the leader, and killed only that
	used     *spool.ProcessUse

	floor int64 // this process's peak of memory when the leader began
}

// Pid returns the leader's process id.
func (t *Tree) Pid() int { return t.pid }

// PidFD returns a descriptor that becomes readable when the leader has ended.
// It is valid until [Tree.Reap].
func (t *Tree) PidFD() int { return t.pidfd }

// Group returns the directory of the tree's control group, or "" if there is
// none.
func (t *Tree) Group() string {
	if t.slot == nil {
		return ""
	}
	return t.slot.dir
}

// MemoryKills returns how many processes of the tree the kernel has killed because
// of its limit of memory.
func (t *Tree) MemoryKills() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slot == nil || t.released {
		return 0
	}
	return t.slot.bounds.memoryKills()
}

// Refused returns how many forks of the tree its limit of processes has refused.
func (t *Tree) Refused() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slot == nil || t.released {
		return 0
	}
	return t.slot.refusals() - t.slot.refused
}

// Throttled returns in how many tenths of a second the tree had to wait because of
// its limit of processor time.
func (t *Tree) Throttled() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slot == nil || t.released {
		return 0
	}
	return t.slot.bounds.throttled()
}

// LimitCPUs changes the limit of processor time of a tree that was started with one.
func (t *Tree) LimitCPUs(cpus float64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slot == nil || t.released || t.slot.bounds.quota == "" {
		return ErrNoCPULimit
	}
	return write(t.slot.bounds.quota, quota(cpus)) // the period stays
}

// Reap waits for the leader, collects its exit status, and closes the pidfd. It
// must be called once.
func (t *Tree) Reap() (unix.WaitStatus, error) {
	fail := failpoint.Inject("launch.reap")
	var info unix.Siginfo
	for { // without the lock, and without reaping
		err := unix.Waitid(unix.P_PIDFD, t.pidfd, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	var status unix.WaitStatus
	t.mu.Lock()
	var used unix.Rusage
	_, err := unix.Wait4(t.pid, &status, 0, &used)
	for err == unix.EINTR {
		_, err = unix.Wait4(t.pid, &status, 0, &used)
	}
	if err == nil {
		t.used = t.usedBy(&used)
	}
	t.reaped = true
	_ = unix.Close(t.pidfd)
	if t.alone && !t.slot.empty() { // it was forking when it was killed
		_ = t.slot.kill() // callers count what is left
	}
	t.mu.Unlock()
	if err = errors.Join(err, fail); err == nil {
		err = failpoint.Inject("launch.reaped")
	}
	if t.search != nil {
		t.l.walk.leaderReaped(t.search)
	}
	if err != nil {
		return 0, fmt.Errorf("wait for process %d: %w", t.pid, err)
	}
	return status, nil
}

// SignalGroup signals the leader's process group. After the leader was reaped,
// the group's number may belong to another process: then it returns
// [os.ErrProcessDone].
func (t *Tree) SignalGroup(sig unix.Signal) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reaped {
		return os.ErrProcessDone
	}
	if t.signal != nil {
		return t.signal(sig, Group)
	}
	if err := unix.Kill(-t.pid, sig); err != nil {
		return fmt.Errorf("signal process group %d: %w", t.pid, err)
	}
	return nil
}

// SignalForeground signals the foreground process group of the terminal of a tree
// whose processes this kernel does not know. It reports whether the tree is one.
func (t *Tree) SignalForeground(sig unix.Signal) (ok bool, err error) {
	if t.signal == nil {
		return false, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reaped {
		return true, os.ErrProcessDone
	}
	return true, t.signal(sig, Foreground)
}

// SignalAll signals every live process of the tree, whatever its process group.
func (t *Tree) SignalAll(sig unix.Signal) error {
	if t.signal != nil {
		return t.signal(sig, All)
	}
	live, err := t.list()
	for _, p := range live {
		signalProc(p, sig)
	}
	return err
}

// list returns the live members.
func (t *Tree) list() ([]proc, error) {
	if t.search != nil {
		return t.l.walk.find(t.search)
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

// Count counts the live processes of the tree.
func (t *Tree) Count() (Members, error) {
	var m Members
	if t.search != nil {
		live, err := t.l.walk.find(t.search)
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

// Kill kills every process of the tree. A process may take a moment to end;
// without control groups, an error reports that some are left.
func (t *Tree) Kill() error {
	if t.kill != nil {
		t.kill()
	}
	if t.search != nil {
		return t.l.walk.kill(t.search)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.released { // the group may belong to another tree
		return nil
	}
	strays, members, searchErr := t.holdStrays()
	t.strays += len(strays)
	// A group that was killed cannot be used again. A leader without others needs no such
	// kill: what it forks until it is dead is in the group when it is reaped.
	if !t.reaped && searchErr == nil && len(strays) == 0 && len(members) == 1 && members[0].pid == t.pid {
		if t.alone = t.killLeader() == nil; t.alone {
			return nil
		}
	}
	err := t.slot.kill()
	_ = t.killLeader() // most likely it was in the group
	for _, p := range strays {
		signalProc(p, unix.SIGKILL)
	}
	if err != nil {
		return fmt.Errorf("kill control group: %w", err)
	}
	if searchErr != nil {
		return fmt.Errorf("look for processes outside of the control group: %w", searchErr)
	}
	return nil
}

// Release releases the tree once the leader is reaped. Processes that are still
// alive stay until the launcher is closed.
func (t *Tree) Release() {
	t.mu.Lock()
	done := t.released
	t.released = true
	t.mu.Unlock()
	switch {
	case done:
	case t.search != nil:
		t.l.walk.drop(t.search)
	default:
		t.l.groups.release(t.slot)
	}
}
