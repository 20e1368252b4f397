package launch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzStat checks that the name of a command, which any program chooses, does not
// change what else is read from a stat file.
func FuzzStat(f *testing.F) {
	f.Add("cat", []byte("1 (cat) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0"))
	f.Add("a) R 9 9 9 (b", []byte("1 (x"))
	f.Add(") \n", []byte("1 () S"))
	f.Fuzz(func(t *testing.T, name string, file []byte) {
		const format = "4242 (%s) S 17 18 19 34816 -1 4194304 95 0 0 0 0 0 0 0 20 0 1 0 7777 8372224 200\n"
		got, err := parseStat(fmt.Appendf(nil, format, name))
		if want := (proc{pid: 4242, ppid: 17, pgrp: 18, sid: 19, state: 'S', start: 7777}); err != nil || got != want {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
		_, _ = parseStat(file) // any bytes are a value or an error
	})
}

// FuzzRoots checks that a control group is only found below a mount.
func FuzzRoots(f *testing.F) {
	const v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
	f.Add(v2, "0::/user.slice/a\n")
	f.Add("33 23 0:30 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"+v2, "4:pids:/docker/x/y\n0::/docker/../x\n")
	f.Add("1 1 0:1 /a\\040b /mnt/c\\134 - cgroup2 x rw\n", "0::/a b/c\n")
	f.Fuzz(func(t *testing.T, mounts, own string) {
		r := parseRoots(mounts, own)
		for _, dir := range []string{r.v2, r.pids} {
			if dir == "" {
				continue
			}
			below := false
			for line := range strings.Lines(mounts) {
				fields := strings.Fields(line)
				if len(fields) < 5 {
					continue
				}
				rel, err := filepath.Rel(unescapeMount(fields[4]), dir)
				below = below || err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
			}
			if !below {
				t.Errorf("group %q is below no mount of %q", dir, mounts)
			}
		}
	})
}
