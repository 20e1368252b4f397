// Package launch starts processes and tracks their trees.
//
// A tree is a leader and all its descendants, including those in new sessions
// and after double forks. The launcher tests once which mechanism works on the
// machine:
//
//   - a control group (v2) per tree: the leader is cloned into it, so
//     descendants begin inside, and cgroup.kill kills all of them at once. A
//     process with the right to leave the group is found by its parent;
//   - without control groups, a search of /proc: this process becomes the reaper
//     of orphans, so every descendant stays below it, and a variable in the
//     environment marks the tree of an orphan. A search races with forks and is
//     repeated until it finds no process.
//
// Control groups are in <root>/spool/<owner>/<slot>. The caller chooses the owner's
// name, so that a later process can kill the processes that a dead one left
// behind: see [SweepOwner].
package launch

import "syscall"

// TreeMode selects how process trees are tracked.
type TreeMode string

// The modes.
const (
	TreeAuto   TreeMode = ""       // the best available
	TreeCgroup TreeMode = "cgroup" // control groups, or an error
	TreeWalk   TreeMode = "walk"   // no control groups
)

// Options configure a [Launcher].
type Options struct {
	// Owner names the directory of this launcher's control groups. It must be
	// unique among the live processes of the machine. Within one process,
	// callers with the same owner share a launcher. If empty, the launcher
	// chooses a name.
	Owner string
	Mode  TreeMode
	// Spares is how many control groups are made ahead for later starts. The
	// callers that share a launcher get the largest number of theirs.
	Spares int
}

// Guarantees describe what a launcher can promise on this machine.
type Guarantees struct {
	// Kill is the mechanism that kills a tree: "cgroup.kill", from which no
	// process escapes, or "walk", a search repeated until no process is left.
	Kill string
	// Pids reports whether the number of processes of a run is limited.
	Pids bool
}

// The values of [Guarantees.Kill].
const (
	KillCgroup = "cgroup.kill"
	KillWalk   = "walk"
)

// Command is one program to start.
type Command struct {
	Path  string    // the file to execute; relative to Dir
	Argv  []string  // including argv[0]
	Env   []string  // the complete environment
	Dir   string    // empty means that of this process
	Files []uintptr // become the child's descriptors 0, 1, 2 …
	TTY   bool      // Files[0] becomes the controlling terminal
	// The limits of the tree. Zero means no limit.
	Pids   int     // processes and threads
	Memory int64   // bytes of memory and swap; above it the kernel kills a process
	CPUs   float64 // processors; 1.5 is the time of one and a half

	// Fork starts the program in place of [syscall.ForkExec]. It may change
	// where the program runs, but not what it is a child of.
	Fork func(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error)
	// On, if it is not nil, calls a function on the thread on which Fork is to be
	// called. It need not wait for its end. Fork works on other threads, too.
	On func(f func())
	// Signal, if it is not nil, signals processes of the tree in place of this
	// kernel, which does not know them.
	Signal func(sig syscall.Signal, to Target) error
	// Kill, if it is not nil, is called first when the tree is killed.
	Kill func()
}

// Target is a part of a tree that can be signalled.
type Target byte

// The targets.
const (
	Group      Target = 'g' // the process group of the program
	Foreground Target = 'f' // the foreground process group of its terminal
	All        Target = 'a' // every process
)

// Members counts the live processes of a tree.
type Members struct {
	Group   int // in the leader's process group
	Escaped int // in another one
}

// None reports whether no process is left.
func (m Members) None() bool { return m.Group == 0 && m.Escaped == 0 }
