package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNoMemoryLimit reports that the memory of a tree cannot be limited here.
var ErrNoMemoryLimit = errors.New("the memory of processes cannot be limited here")

// MemoryGroup is a control group that limits the memory of all its processes
// together. Above the limit the kernel kills one of them.
type MemoryGroup struct{ dir string }

// MemoryGroup makes a group with a limit in bytes.
func (l *Launcher) MemoryGroup(limit int64) (*MemoryGroup, error) {
	root, err := memoryRoot()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, baseName, l.owner, strconv.FormatUint(l.starts.Add(1), 10))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoMemoryLimit, err)
	}
	m := &MemoryGroup{dir}
	if err := write(filepath.Join(dir, "memory.limit_in_bytes"), strconv.FormatInt(limit, 10)); err != nil {
		return nil, errors.Join(fmt.Errorf("limit memory: %w", err), m.Close())
	}
	return m, nil
}

// memoryRoot returns this process's group in the v1 memory hierarchy.
func memoryRoot() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	var group string
	for line := range strings.Lines(string(own)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && hasWord(f[1], "memory") {
			group = f[2]
		}
	}
	for line := range strings.Lines(string(mounts)) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, t := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(t) < 3 || t[0] != "cgroup" || !hasWord(t[2], "memory") || group == "" {
			continue
		}
		if root := groupPath(unescapeMount(l[4]), unescapeMount(l[3]), group); root != "" {
			return root, nil
		}
	}
	return "", ErrNoMemoryLimit
}

// Tasks returns the file to which a process writes "0" to enter the group. Its
// later children are in the group, too.
func (m *MemoryGroup) Tasks() string { return filepath.Join(m.dir, "tasks") }

// Kills returns how many processes of the group the kernel has killed because
// of its limit.
func (m *MemoryGroup) Kills() int64 {
	b, err := read(filepath.Join(m.dir, "memory.oom_control"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok {
			n, err := strconv.ParseInt(count, 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// Close removes the group. It waits a moment for its processes to end.
func (m *MemoryGroup) Close() error {
	return removeGroup(m.dir, time.Now().Add(sweepTime))
}

// sweepMemory removes the memory groups of a dead owner.
func sweepMemory(owner string) error {
	root, err := memoryRoot()
	if err != nil {
		return nil // there are none
	}
	dir := filepath.Join(root, baseName, owner)
	deadline := time.Now().Add(sweepTime)
	var errs []error
	for _, d := range append(subdirs(dir), dir) {
		errs = append(errs, removeGroup(d, deadline))
	}
	_ = os.Remove(filepath.Dir(dir)) // fails if others use it
	return errors.Join(errs...)
}
