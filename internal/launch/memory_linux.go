package launch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// ErrNoMemoryLimit reports that the memory of a tree cannot be limited here.
var ErrNoMemoryLimit = errors.New("the memory of processes cannot be limited here")

// MemoryGroup is a control group that limits the memory of all its processes
// together. Above the limit the kernel kills one of them.
type MemoryGroup struct{ dir string }

// MemoryGroup makes a group with a limit in bytes.
func (l *Launcher) MemoryGroup(limit int64) (*MemoryGroup, error) {
	root, err := controllerRoot("memory")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoMemoryLimit, err)
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
	return field(b, "oom_kill ")
}

// Close removes the group. It waits a moment for its processes to end.
func (m *MemoryGroup) Close() error {
	return removeGroup(m.dir, time.Now().Add(sweepTime))
}

// sweepV1 removes the groups of an owner that limit memory and processor time in
// v1 hierarchies. Their processes are gone or about to end.
func sweepV1(owner string) error {
	deadline := time.Now().Add(sweepTime)
	var errs []error
	for _, controller := range []string{"memory", "cpu"} {
		root, err := controllerRoot(controller)
		if err != nil {
			continue // there are none
		}
		dir := filepath.Join(root, baseName, owner)
		for _, d := range append(subdirs(dir), dir) {
			errs = append(errs, removeGroup(d, deadline))
		}
		_ = os.Remove(filepath.Dir(dir)) // fails if others use it
	}
	return errors.Join(errs...)
}
