// Package launch starts processes and keeps hold of the trees they grow.
//
// A tree is a leader and everything it starts, whatever that does to get
// away: new sessions and double forks included. Which mechanism holds it is
// found out once, by really using it:
//
//   - a control group (v2) per tree: the leader is cloned into it, so nothing
//     is ever outside, and cgroup.kill ends all of it at once;
//   - where there are none, a walk over /proc: this process becomes the
//     reaper of orphans, so every descendant stays below it, and a marked
//     environment says which tree an orphan came from. A walk races with
//     forks and is repeated until it finds nobody.
//
// Control groups live in <root>/spool/<owner>/<slot>. The owner is a name
// the caller chooses, so that a later process can end what a dead one left
// behind: see [SweepOwner].
package launch

// TreeMode says how process trees are held.
type TreeMode string

// The modes.
const (
	TreeAuto   TreeMode = ""       // the best that works here
	TreeCgroup TreeMode = "cgroup" // control groups, or an error
	TreeWalk   TreeMode = "walk"   // no control groups at all
)

// Options configure a [Launcher].
type Options struct {
	// Owner names the directory of this launcher's control groups. It
	// must be unique among the processes alive on the machine; within one,
	// those who name the same owner share a launcher. Empty lets the
	// launcher choose.
	Owner string
	Mode  TreeMode
}

// Guarantees say what the machine lets a launcher promise.
type Guarantees struct {
	// Kill is what ends a tree: "cgroup.kill", which nothing escapes, or
	// "walk", which is repeated until nobody is left.
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
	Argv  []string  // what the program sees, argv[0] included
	Env   []string  // all of it
	Dir   string    // empty means our own
	Files []uintptr // become the child's descriptors 0, 1, 2 …
	TTY   bool      // Files[0] becomes the controlling terminal
	Pids  int       // most processes and threads at once; zero means no limit
}

// Members counts the live processes of a tree.
type Members struct {
	Group   int // in the leader's process group
	Escaped int // in another one
}

// None reports whether nobody is left.
func (m Members) None() bool { return m.Group == 0 && m.Escaped == 0 }
