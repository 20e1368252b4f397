package launch

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A process with the right to, such as one of root, can move itself out of the
// control group of its tree. Such a stray is found in the tree's other group, as
// a child of the tree's processes or, if its parent has ended, by its session,
// and killed by its pidfd. One that left the groups, its parent and its session
// is not found.

// stopTime limits how long killing a tree waits until strays are stopped.
const stopTime = 100 * time.Millisecond

// holdStrays finds the descendants of the leader and of the processes in the
// control group that are outside of it. If there are any, it stops all processes
// of the tree, so that none forks before it is killed. The members are the live
// processes in the group. The caller holds t.mu.
func (t *Tree) holdStrays() (strays, members []proc, err error) {
	strays, members, err = t.findStrays()
	if err != nil || len(strays) == 0 {
		return nil, members, err
	}
	stopped := make(map[proc]bool)
	for deadline := time.Now().Add(stopTime); ; time.Sleep(100 * time.Microsecond) {
		settled := true
		for _, p := range append(members, strays...) {
			key := proc{pid: p.pid, start: p.start}
			if !stopped[key] {
				stopped[key] = true
				signalProc(p, unix.SIGSTOP)
			}
			settled = settled && (p.state == 'T' || p.dead())
		}
		if settled || time.Now().After(deadline) {
			return strays, members, nil
		}
		if strays, members, err = t.findStrays(); err != nil {
			return strays, members, err
		}
	}
}

// findStrays returns the live processes of the tree, outside and inside of the
// control group. The caller holds t.mu.
func (t *Tree) findStrays() (strays, members []proc, err error) {
	pids, err := t.slot.pidList()
	if err != nil {
		return nil, nil, err
	}
	inside := make(map[int]bool, len(pids))
	for _, pid := range pids {
		inside[pid] = true
	}
	if t.slot.pids != "" && t.slot.limit > 0 {
		list, err := readPids(t.slot.pids + "/cgroup.procs")
		if err != nil {
			return nil, nil, err
		}
		pids = append(pids, list...)
	}
	if !t.reaped && !inside[t.pid] {
		pids = append(pids, t.pid)
	}
	// Neither this process, of which a thread may be in the group to fork, nor its session
	// is ever of the tree.
	seen := make(map[int]bool, len(pids))
	seen[os.Getpid()] = true
	ours, err := unix.Getsid(0)
	if err != nil {
		return nil, nil, err
	}
	sessions := make(map[int]bool)
	if !t.reaped { // else the number may be that of another session
		sessions[t.pid] = true
	}
	for len(pids) > 0 {
		for len(pids) > 0 {
			pid := pids[0]
			pids = pids[1:]
			if seen[pid] {
				continue
			}
			seen[pid] = true
			p, err := readProc(pid)
			if err != nil || p.dead() { // the children of a dead process are not its any more
				continue
			}
			if inside[pid] {
				members = append(members, p)
			} else {
				strays = append(strays, p)
			}
			if p.sid != ours { // else it has not left it yet
				sessions[p.sid] = true
			}
			children, err := childrenOf(p)
			if err != nil {
				return strays, members, err
			}
			pids = append(pids, children...)
		}
		if !t.own {
			break // other trees may be in its session
		}
		orphans, err := t.orphansOf(sessions)
		if err != nil {
			return strays, members, err
		}
		for _, pid := range orphans {
			if !seen[pid] {
				pids = append(pids, pid)
			}
		}
	}
	return strays, members, nil
}

// orphansOf lists processes of some sessions whose parent has ended and that are
// in no group of the launcher. The kernel gives orphans to this process or to one
// above it.
func (t *Tree) orphansOf(sessions map[int]bool) ([]int, error) {
	var list []int
	for pid := os.Getpid(); pid > 0; {
		above, err := readProc(pid)
		if err != nil {
			return list, ignoreEnded(err)
		}
		children, err := childrenOf(above)
		if err != nil {
			return list, err
		}
		for _, child := range children { // most are leaders of other trees: ask in the cheapest way
			if sid, err := unix.Getsid(child); err == nil && sessions[sid] && !t.l.hasInGroup(child) {
				list = append(list, child)
			}
		}
		pid = above.ppid
	}
	return list, nil
}

// hasInGroup reports whether a process is in a group of the launcher: it belongs
// to the tree of that group, even if another forked it.
func (l *Launcher) hasInGroup(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.Contains(group, "/"+baseName+"/"+l.owner+"/")
		}
	}
	return false
}

// childrenOf lists the children of a process: none if it has ended.
func childrenOf(p proc) ([]int, error) {
	dir := "/proc/" + strconv.Itoa(p.pid) + "/task/"
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil, ignoreEnded(err)
	}
	var list []int
	for _, thread := range threads {
		b, err := os.ReadFile(dir + thread.Name() + "/children")
		if errors.Is(err, fs.ErrNotExist) {
			if _, statErr := os.Stat(dir + thread.Name()); statErr == nil { // the kernel has no such file
				return searchChildren(p)
			}
		}
		if err != nil {
			if err = ignoreEnded(err); err != nil {
				return nil, err
			}
			continue
		}
		for field := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(field)
			if err != nil {
				return nil, err
			}
			list = append(list, pid)
		}
	}
	if now, err := readProc(p.pid); err != nil || now.start != p.start { // the pid was reused
		return nil, nil
	}
	return list, nil
}

// searchChildren is childrenOf for a kernel that does not list children.
func searchChildren(p proc) ([]int, error) {
	table, err := procs()
	if err != nil || table[p.pid].start != p.start {
		return nil, err
	}
	var list []int
	for pid, c := range table {
		if c.ppid == p.pid {
			list = append(list, pid)
		}
	}
	return list, nil
}

// ignoreEnded drops the error of reading about a process that has ended.
func ignoreEnded(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// killLeader kills the leader, wherever it is. The caller holds t.mu.
func (t *Tree) killLeader() error {
	var err error
	switch {
	case t.reaped:
	case t.pidfd >= 0:
		err = unix.PidfdSendSignal(t.pidfd, unix.SIGKILL, nil, 0)
	default: // not reaped, so the pid is its own
		err = unix.Kill(t.pid, unix.SIGKILL)
	}
	if err == unix.ESRCH { // it has ended
		return nil
	}
	return err
}

// Strays returns the number of processes that [Tree.Kill] found outside of the
// control group of the tree.
func (t *Tree) Strays() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.strays
}
