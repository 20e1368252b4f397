package launch

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// roots are the directories below which this process may make control groups.
type roots struct {
	v2   string // empty if there is no v2 hierarchy
	pids string // of the v1 pids hierarchy; empty if there is none
}

// findRoots finds the groups of this process.
func findRoots() (roots, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return roots{}, err
	}
	own, err := ownGroups()
	if err != nil {
		return roots{}, err
	}
	return parseRoots(string(mounts), own), nil
}

// ownGroups returns the control groups of this process, as the kernel writes them. It asks
// for those of its thread: /proc/self is the main thread, and that may be in the group of
// a tree at this moment, to start a process there.
func ownGroups() (string, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b, err := os.ReadFile("/proc/thread-self/cgroup")
	return string(b), err
}

func parseRoots(mountinfo, own string) roots {
	var v2, pids string
	for line := range strings.Lines(own) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			v2 = f[2]
		case hasWord(f[1], "pids"):
			pids = f[2]
		}
	}
	var r roots
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, t := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(t) < 3 {
			continue
		}
		root, at := unescapeMount(l[3]), unescapeMount(l[4])
		switch {
		case t[0] == "cgroup2" && v2 != "" && r.v2 == "":
			r.v2 = groupPath(at, root, v2)
		case t[0] == "cgroup" && hasWord(t[2], "pids") && pids != "" && r.pids == "":
			r.pids = groupPath(at, root, pids)
		}
	}
	return r
}

// groupPath returns the path of a group in a mount that shows the hierarchy from
// root on, or "" if the mount does not show it.
func groupPath(mount, root, group string) string {
	rel, err := filepath.Rel(root, group)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") || strings.Contains(group, "/..") {
		return ""
	}
	return filepath.Join(mount, rel)
}

func hasWord(list, word string) bool {
	for w := range strings.SplitSeq(list, ",") {
		if w == word {
			return true
		}
	}
	return false
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func unescapeMount(s string) string { return mountEscapes.Replace(s) }
