package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of times in /proc/<pid>/stat. Linux shows all programs
// 100 ticks a second.
const clockTick = time.Second / 100

// Measure returns what the trees of leaders use now, by the pid of the leader. A
// tree without processes is left out. It needs no launcher: any process of the
// same user may ask.
func Measure(leaders []int) (map[int]Usage, error) {
	r, err := findRoots()
	if err != nil {
		return nil, err
	}
	var table map[int]proc // read when needed
	used := make(map[int]Usage, len(leaders))
	for _, leader := range leaders {
		dir := groupOf(leader, r.v2)
		var members []int
		u := Usage{Source: SourceProc}
		if dir != "" {
			u.Source = SourceGroup
			members, err = readPids(filepath.Join(dir, "cgroup.procs"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		} else {
			if table == nil {
				if table, err = procs(); err != nil {
					return nil, err
				}
			}
			members = treeOf(leader, table)
		}
		for _, pid := range members {
			u.add(pid)
		}
		if u.Processes == 0 {
			continue
		}
		if memory, ok := groupMemory(dir); ok {
			u.Memory = memory
		}
		used[leader] = u
	}
	return used, nil
}

// groupOf returns the directory of the control group of a process, if it is one
// that a launcher made: <root>/spool/<owner>/<slot>.
func groupOf(pid int, root string) string {
	if root == "" {
		return ""
	}
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		parts := strings.Split(path, "/")
		for i := range parts {
			if parts[i] != baseName || i+3 > len(parts) {
				continue
			}
			// The root may be seen through a mount of a part of the hierarchy.
			dir := filepath.Join(append([]string{root}, parts[i:i+3]...)...)
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
				return dir
			}
		}
	}
	return ""
}

// treeOf returns the processes of a tree: the descendants of the leader and the
// members of its session.
func treeOf(leader int, table map[int]proc) []int {
	children := make(map[int][]int)
	var queue []int
	for _, p := range table {
		children[p.ppid] = append(children[p.ppid], p.pid)
		if p.pid == leader || p.sid == leader {
			queue = append(queue, p.pid)
		}
	}
	seen := make(map[int]bool)
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		if !seen[pid] {
			seen[pid] = true
			queue = append(queue, children[pid]...)
		}
	}
	members := make([]int, 0, len(seen))
	for pid := range seen {
		members = append(members, pid)
	}
	return members
}

// add adds what a process uses. One that ends meanwhile is left out.
func (u *Usage) add(pid int) {
	dir := "/proc/" + strconv.Itoa(pid)
	b, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	f := strings.Fields(rest)
	if len(f) < 22 || f[0] == "Z" || f[0] == "X" {
		return
	}
	u.Processes++
	for _, ticks := range f[11:15] { // of the process, and of children that ended
		n, _ := strconv.ParseInt(ticks, 10, 64) // the kernel writes numbers
		u.CPU += time.Duration(n) * clockTick
	}
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	u.Memory += pages * int64(os.Getpagesize())
	io, err := os.ReadFile(dir + "/io")
	if err != nil {
		return // of a process that may not be traced
	}
	u.Read += field(io, "read_bytes: ")
	u.Written += field(io, "write_bytes: ")
}

// groupMemory returns the memory that a control group uses, without cached files
// that the kernel can drop, if the group counts memory.
func groupMemory(dir string) (int64, bool) {
	if dir == "" {
		return 0, false
	}
	b, err := os.ReadFile(filepath.Join(dir, "memory.current"))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return 0, false
	}
	stat, _ := os.ReadFile(filepath.Join(dir, "memory.stat")) // without it nothing is taken off
	return max(0, n-field(stat, "inactive_file ")), true
}

// field returns the number after a name at the beginning of a line.
func field(b []byte, name string) int64 {
	for line := range strings.Lines(string(b)) {
		if text, ok := strings.CutPrefix(line, name); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
			return n
		}
	}
	return 0
}
