package launch

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// markVariable is set in the environment of processes found by a search, to
// find the tree of an orphan.
const markVariable = "SPOOL_TREE"

// walker finds the processes of trees in /proc. It needs this process to be the
// reaper of orphaned descendants: then every process of a tree is a descendant
// of this process, and it never touches others.
type walker struct {
	self int

	mu      sync.Mutex
	leaders map[int]*treeSearch // by pid, until reaped
	all     map[*treeSearch]struct{}
	dropped []*treeSearch
	pruned  time.Time
}

// treeSearch is the state of the search of one tree.
type treeSearch struct {
	mark   string
	leader int

	// Guarded by walker.mu.
	seen     map[int]uint64 // start times by pid
	sessions map[int]bool
}

func newWalker() (*walker, error) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("become the reaper of orphans: %w", err)
	}
	if _, err := procs(); err != nil {
		return nil, fmt.Errorf("read /proc: %w", err)
	}
	return &walker{self: os.Getpid(), leaders: make(map[int]*treeSearch), all: make(map[*treeSearch]struct{})}, nil
}

// add begins to track a tree.
func (w *walker) add(leader int, mark string) *treeSearch {
	g := &treeSearch{mark: mark, leader: leader, seen: make(map[int]uint64), sessions: map[int]bool{leader: true}}
	w.mu.Lock()
	defer w.mu.Unlock()
	for old := range w.all { // the pid belongs to a new process
		delete(old.sessions, leader)
		delete(old.seen, leader)
	}
	w.leaders[leader] = g
	w.all[g] = struct{}{}
	return g
}

// leaderReaped records that the leader's pid may be reused.
func (w *walker) leaderReaped(g *treeSearch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leaders[g.leader] == g {
		delete(w.leaders, g.leader)
	}
}

// The number and age of dropped trees at which walker forgets those without
// processes. Each time reads all of /proc.
const (
	pruneCount = 64
	pruneTime  = time.Second
)

// drop stops tracking a tree once it has no processes left, which may be later.
func (w *walker) drop(g *treeSearch) {
	w.mu.Lock()
	w.dropped = append(w.dropped, g)
	if len(w.dropped) < pruneCount && time.Since(w.pruned) < pruneTime {
		w.mu.Unlock()
		return
	}
	list := w.dropped
	w.dropped, w.pruned = nil, time.Now()
	w.mu.Unlock()

	table, err := procs()
	for _, g := range list {
		if err == nil && len(w.members(g, table)) == 0 {
			w.mu.Lock()
			delete(w.all, g)
			w.mu.Unlock()
			continue
		}
		w.mu.Lock()
		w.dropped = append(w.dropped, g)
		w.mu.Unlock()
	}
}

// find returns the live processes of a tree and reaps dead orphans. It waits
// only for known pids: waiting for any child would take exit statuses from
// other callers.
func (w *walker) find(g *treeSearch) ([]proc, error) {
	table, err := procs()
	if err != nil {
		return nil, fmt.Errorf("read /proc: %w", err)
	}
	return w.members(g, table), nil
}

// members is look with a given process table.
func (w *walker) members(g *treeSearch, table map[int]proc) []proc {
	children := make(map[int][]proc)
	var orphans []proc // direct children of this process that are not registered
	w.mu.Lock()
	for _, p := range table {
		children[p.ppid] = append(children[p.ppid], p)
		if p.ppid == w.self && w.leaders[p.pid] == nil {
			orphans = append(orphans, p)
		}
	}
	w.mu.Unlock()

	marks := make(map[int]string)
	for _, p := range orphans {
		if !p.dead() {
			marks[p.pid] = markOf(p.pid)
		}
	}

	w.mu.Lock()
	var live, dead, queue []proc
	if p, ok := table[g.leader]; ok && w.leaders[g.leader] == g {
		queue = append(queue, p)
	}
	for _, p := range orphans {
		start, known := g.seen[p.pid]
		switch {
		case known && start == p.start:
		case marks[p.pid] == g.mark:
		case p.pid != p.sid && g.sessions[p.sid]:
		default:
			continue
		}
		queue = append(queue, p)
		if p.dead() {
			dead = append(dead, p)
		}
	}
	for len(queue) > 0 {
		p := queue[0]
		queue = append(queue[1:], children[p.pid]...)
		if p.dead() {
			continue
		}
		g.seen[p.pid] = p.start
		g.sessions[p.sid] = true
		live = append(live, p)
	}
	for _, p := range dead {
		delete(g.seen, p.pid)
	}
	w.mu.Unlock()
	for _, p := range dead {
		_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil) // reaped or not, it has ended
	}
	return live
}

// kill kills a tree: it stops all processes until a search finds no new one, so
// that they cannot fork meanwhile, then kills them, and repeats until none is
// left.
func (w *walker) kill(g *treeSearch) error {
	deadline := time.Now().Add(sweepTime)
	stopped := make(map[int]uint64)
	for {
		live, err := w.find(g)
		if err != nil {
			return err
		}
		if len(live) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill process tree: %d processes are left", len(live))
		}
		fresh := false
		for _, p := range live {
			if stopped[p.pid] != p.start {
				stopped[p.pid] = p.start
				fresh = true
				signalProc(p, unix.SIGSTOP)
			}
		}
		if fresh {
			continue
		}
		for _, p := range live {
			signalProc(p, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond) // until the processes have ended
	}
}

// signalProc signals a process unless its pid was reused.
func signalProc(p proc, sig unix.Signal) bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	now, err := readProc(p.pid)
	return err == nil && now.start == p.start && unix.PidfdSendSignal(fd, sig, nil, 0) == nil
}
