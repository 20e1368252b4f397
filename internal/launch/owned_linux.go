package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Owned returns the processes in the control groups, and with the marks, of this
// user's launchers, by owner. It includes those of launchers that are alive.
func Owned() (map[string][]int, error) {
	r, err := findRoots()
	if err != nil {
		return nil, err
	}
	owned := make(map[string][]int)
	if r.v2 != "" {
		for _, dir := range subdirs(filepath.Join(r.v2, baseName)) {
			if !isOwn(dir) {
				continue
			}
			for _, group := range subdirs(dir) {
				// A group may be removed meanwhile.
				if list, err := readPids(filepath.Join(group, "cgroup.procs")); err == nil && len(list) > 0 {
					owned[filepath.Base(dir)] = append(owned[filepath.Base(dir)], list...)
				}
			}
		}
	}
	table, err := procs()
	if err != nil {
		return nil, err
	}
	for pid, p := range table {
		mark := markOf(pid) // empty for processes of others
		if i := strings.LastIndexByte(mark, '.'); i > 0 && !p.dead() && isOwn("/proc/"+strconv.Itoa(pid)) {
			owned[mark[:i]] = append(owned[mark[:i]], pid)
		}
	}
	return owned, nil
}

// isOwn reports whether a file belongs to this user.
func isOwn(file string) bool {
	fi, err := os.Stat(file)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// OwnProcesses returns how many processes and threads the control group of this
// process has, and how many it may have. It reports false if there is no limit.
func OwnProcesses() (now, most int, ok bool) {
	r, err := findRoots()
	if err != nil {
		return 0, 0, false
	}
	for _, dir := range []string{r.v2, r.pids} {
		if dir == "" {
			continue
		}
		if most, err = readNumber(filepath.Join(dir, "pids.max")); err != nil {
			continue // "max", or no such file in the root
		}
		if now, err = readNumber(filepath.Join(dir, "pids.current")); err == nil {
			return now, most, true
		}
	}
	return 0, 0, false
}

func readNumber(file string) (int, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
