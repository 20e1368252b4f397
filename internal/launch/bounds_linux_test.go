package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/skiptest"
)

// limited returns a launcher that can limit memory and processor time.
func limited(t *testing.T) *Launcher {
	t.Helper()
	l := open(t, TreeCgroup)
	if err := l.TryLimits(64<<20, 0.5); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	return l
}

// hog uses all the memory there is: tail keeps a line that never ends.
const hog = "exec tail /dev/zero"

func startLimited(t *testing.T, l *Launcher, script string, memory int64, cpus float64) *Tree {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	c := sh(script)
	c.Memory, c.CPUs, c.Pids = memory, cpus, 100
	c.Files = []uintptr{null.Fd(), null.Fd(), null.Fd()}
	tree, err := l.Start(c)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// TestMemoryLimit checks that the kernel kills a process at the limit, that the
// tree tells it from another SIGKILL, and that other trees are not affected.
func TestMemoryLimit(t *testing.T) {
	l := limited(t)
	for _, tt := range []struct {
		name, script string
		memory       int64
		kills        bool
	}{
		{"leader", hog, 32 << 20, true},
		{"child", "tail /dev/zero; true", 32 << 20, true},
		{"enough", "head -c 1000000 /dev/zero | tail", 64 << 20, false},
		{"no limit", "head -c 50000000 /dev/zero | tail", 0, false},
		{"another SIGKILL", "kill -9 $$", 32 << 20, false},
	} {
		tree := startLimited(t, l, tt.script, tt.memory, 0)
		status, err := tree.Reap()
		if err != nil {
			t.Fatal(err)
		}
		if got := tree.MemoryKills() > 0; got != tt.kills {
			t.Errorf("%s: killed for memory is %v; status %x", tt.name, got, status)
		}
		tree.Release()
		if tree.MemoryKills() != 0 {
			t.Errorf("%s: a released tree has kills", tt.name)
		}
	}
}

// TestCPULimit checks that a tree gets no more than its share of the processors: it
// is busy until its control group says that it was throttled. The share is so small
// that a busy machine gives as much.
func TestCPULimit(t *testing.T) {
	l := limited(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := sh(`read -r stat; until grep -q 'nr_throttled [1-9]' "$stat"; do :; done`)
	c.CPUs = 0.02
	c.Files = []uintptr{r.Fd(), 2, 2}
	tree, err := l.Start(c)
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Release()
	dir, want, file := tree.slot.dir, "2000 100000", "cpu.max"
	for _, g := range tree.slot.bounds.groups {
		dir, want, file = g.dir, "2000", "cpu.cfs_quota_us"
	}
	if b, err := os.ReadFile(filepath.Join(dir, file)); err != nil || strings.TrimSpace(string(b)) != want {
		t.Errorf("the limit is %q, %v", b, err)
	}
	if _, err := w.WriteString(filepath.Join(dir, "cpu.stat") + "\n"); err != nil {
		t.Fatal(err)
	}
	if status, err := tree.Reap(); err != nil || status.ExitStatus() != 0 {
		t.Errorf("status %x, %v", status, err)
	}
}

// TestLimitsNeedControlGroups checks that a limit is refused where it cannot be
// enforced.
func TestLimitsNeedControlGroups(t *testing.T) {
	l := open(t, TreeWalk)
	for _, c := range []Command{{Memory: 1 << 30}, {CPUs: 1}} {
		c.Path, c.Argv = "/bin/true", []string{"true"}
		want := ErrNoMemoryLimit
		if c.CPUs > 0 {
			want = ErrNoCPULimit
		}
		if _, err := l.Start(c); !errors.Is(err, want) {
			t.Errorf("start: %v, want %v", err, want)
		}
		if err := l.TryLimits(c.Memory, c.CPUs); !errors.Is(err, want) {
			t.Errorf("try: %v, want %v", err, want)
		}
	}
	if err := l.TryLimits(0, 0); err != nil {
		t.Error(err)
	}
}

// TestLimitedGroupsAreRemoved checks that the groups of limited trees do not
// stay behind, and that they are not reused.
func TestLimitedGroupsAreRemoved(t *testing.T) {
	l := limited(t)
	first := startLimited(t, l, "exit 0", 64<<20, 0.5)
	dirs := []string{first.slot.dir}
	for _, g := range first.slot.bounds.groups {
		dirs = append(dirs, g.dir)
	}
	if _, err := first.Reap(); err != nil {
		t.Fatal(err)
	}
	first.Release()
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
	next := startLimited(t, l, "exit 0", 0, 0)
	if len(next.slot.bounds.groups) != 0 || next.slot.single {
		t.Error("a tree without limits has a limited group")
	}
	if _, err := next.Reap(); err != nil {
		t.Fatal(err)
	}
	next.Release()

	// A process that outlives its tree keeps the group until the launcher closes.
	left := startLimited(t, l, "sleep 1000 & exit 0", 64<<20, 0.5)
	if _, err := left.Reap(); err != nil {
		t.Fatal(err)
	}
	left.Release()
	if _, err := os.Stat(left.slot.dir); err != nil {
		t.Error(err)
	}
}

func TestParseControllerRoot(t *testing.T) {
	const mounts = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n35 31 0:32 /a /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	const own = "4:memory:/a/b\n2:cpu,cpuacct:/c\n0::/\n"
	for controller, want := range map[string]string{
		"memory": "/sys/fs/cgroup/memory/b", "cpu": "/sys/fs/cgroup/cpu,cpuacct/c", "pids": "",
	} {
		if got := parseControllerRoot(mounts, own, controller); got != want {
			t.Errorf("%s is in %q, want %q", controller, got, want)
		}
	}
	if got := parseControllerRoot(mounts, "4:memory:/other\n", "memory"); got != "" {
		t.Errorf("a group outside of the mount is %q", got)
	}
}
