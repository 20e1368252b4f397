package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrNoCPULimit reports that the processor time of a tree cannot be limited here.
var ErrNoCPULimit = errors.New("the processor time of processes cannot be limited here")

// cpuPeriod is the time in microseconds in which a tree may use its share of the
// processors; it then waits for the next.
const cpuPeriod = 100_000

// bounds are the limits of one tree beside that of processes. A v2 group has them
// itself. Where a controller belongs to a v1 hierarchy, the tree has another group
// there.
type bounds struct {
	groups []v1Group
	events string // the file with the number of processes killed for memory
	cpu    string // the file with the number of periods in which the tree had to wait
	quota  string // the file with the limit of processor time
}

// v1Group is a control group of a v1 hierarchy, for one tree.
type v1Group struct{ root, dir string }

// controllers are the v2 controllers that this process has tried to enable.
type controllers struct {
	mu    sync.Mutex
	tried map[string]error
}

// limit gives a fresh group the limits of memory and processor time of a command.
func (g *groups) limit(s *slot, c *Command) error {
	if c.Memory > 0 {
		if err := g.limitMemory(s, c.Memory); err != nil {
			return fmt.Errorf("%w: %w", ErrNoMemoryLimit, err)
		}
	}
	if c.CPUs > 0 {
		if err := g.limitCPU(s, c.CPUs); err != nil {
			return fmt.Errorf("%w: %w", ErrNoCPULimit, err)
		}
	}
	return nil
}

func (g *groups) limitMemory(s *slot, limit int64) error {
	bytes := strconv.FormatInt(limit, 10)
	v2Err := g.enable("memory")
	if v2Err == nil {
		s.bounds.events = filepath.Join(s.dir, "memory.events")
		if err := write(filepath.Join(s.dir, "memory.max"), bytes); err != nil {
			return err
		}
		return writeIfThere(filepath.Join(s.dir, "memory.swap.max"), "0")
	}
	dir, err := g.joinV1(s, "memory")
	if err != nil {
		return errors.Join(err, v2Err)
	}
	s.bounds.events = filepath.Join(dir, "memory.oom_control")
	if err := write(filepath.Join(dir, "memory.limit_in_bytes"), bytes); err != nil {
		return err
	}
	return writeIfThere(filepath.Join(dir, "memory.memsw.limit_in_bytes"), bytes) // with swap
}

func (g *groups) limitCPU(s *slot, cpus float64) error {
	v2Err := g.enable("cpu")
	if v2Err == nil {
		s.bounds.cpu, s.bounds.quota = filepath.Join(s.dir, "cpu.stat"), filepath.Join(s.dir, "cpu.max")
		return write(s.bounds.quota, quota(cpus)+" "+strconv.Itoa(cpuPeriod))
	}
	dir, err := g.joinV1(s, "cpu")
	if err != nil {
		return errors.Join(err, v2Err)
	}
	s.bounds.cpu, s.bounds.quota = filepath.Join(dir, "cpu.stat"), filepath.Join(dir, "cpu.cfs_quota_us")
	if err := write(filepath.Join(dir, "cpu.cfs_period_us"), strconv.Itoa(cpuPeriod)); err != nil {
		return err
	}
	return write(s.bounds.quota, quota(cpus))
}

// quota is the processor time of a period, in microseconds.
func quota(cpus float64) string { return strconv.FormatInt(int64(math.Ceil(cpus*cpuPeriod)), 10) }

// writeIfThere writes to a control file of a feature that the kernel may lack.
func writeIfThere(file, text string) error {
	if err := write(file, text); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// joinV1 makes a group of the tree in the v1 hierarchy of a controller.
func (g *groups) joinV1(s *slot, controller string) (dir string, err error) {
	root, err := controllerRoot(controller)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, baseName, filepath.Base(g.tree), "tree-"+filepath.Base(s.dir))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	s.bounds.groups = append(s.bounds.groups, v1Group{root, dir})
	return dir, nil
}

// controllerRoot returns this process's group in the v1 hierarchy of a controller.
func controllerRoot(controller string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	own, err := ownGroups()
	if err != nil {
		return "", err
	}
	if root := parseControllerRoot(string(mounts), own, controller); root != "" {
		return root, nil
	}
	return "", fmt.Errorf("there is no v1 hierarchy for %s", controller)
}

func parseControllerRoot(mountinfo, own, controller string) string {
	var group string
	for line := range strings.Lines(own) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && hasWord(f[1], controller) {
			group = f[2]
		}
	}
	if group == "" {
		return ""
	}
	for line := range strings.Lines(mountinfo) {
		left, right, ok := strings.Cut(strings.TrimSpace(line), " - ")
		l, t := strings.Fields(left), strings.Fields(right)
		if !ok || len(l) < 5 || len(t) < 3 || t[0] != "cgroup" || !hasWord(t[2], controller) {
			continue
		}
		if root := groupPath(unescapeMount(l[4]), unescapeMount(l[3]), group); root != "" {
			return root
		}
	}
	return ""
}

// enable makes the v2 groups of trees limit something. It tries once for each
// controller and process.
func (g *groups) enable(controller string) error {
	g.v2.mu.Lock()
	defer g.v2.mu.Unlock()
	err, ok := g.v2.tried[controller]
	if !ok {
		err = g.enableNow(controller)
		if g.v2.tried == nil {
			g.v2.tried = make(map[string]error)
		}
		g.v2.tried[controller] = err
	}
	return err
}

func (g *groups) enableNow(controller string) error {
	s, err := g.makeSlot()
	if err != nil {
		return err
	}
	defer s.remove()
	return g.delegate(controller, func() error {
		if err := g.probe(s); err != nil {
			return fmt.Errorf("start in a control group: %w", err)
		}
		return nil
	})
}

// delegate passes a v2 controller on to the groups of trees. That can make groups
// reject processes, so it tests it, and reverts it on failure.
func (g *groups) delegate(controller string, test func() error) (err error) {
	base := filepath.Dir(g.tree)
	root := filepath.Dir(base)
	have, err := controllersIn(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	if !hasWord(have, controller) {
		return fmt.Errorf("the control group %s has no %s controller", root, controller)
	}
	var on []string
	defer func() {
		for i := len(on) - 1; err != nil && i >= 0; i-- {
			_ = write(on[i], "-"+controller) // restore the earlier state
		}
	}()
	for _, dir := range []string{root, base, g.tree} {
		f := filepath.Join(dir, "cgroup.subtree_control")
		was, err := controllersIn(f)
		if err != nil {
			return err
		}
		if hasWord(was, controller) {
			continue
		}
		if err := write(f, "+"+controller); err != nil {
			return fmt.Errorf("pass on the %s controller: %w", controller, err)
		}
		on = append(on, f)
	}
	return test()
}

// controllersIn returns the names in a control file, separated by commas.
func controllersIn(file string) (string, error) {
	b, err := os.ReadFile(file)
	return strings.Join(strings.Fields(string(b)), ","), err
}

// files opens the files through which a thread enters the groups and leaves them.
func (b *bounds) files() (enter, leave []int, closeAll func(), err error) {
	closeAll = func() {
		for _, fd := range append(enter, leave...) {
			_ = unix.Close(fd)
		}
	}
	for _, group := range b.groups {
		for _, f := range []struct {
			dir string
			fds *[]int
		}{{group.dir, &enter}, {group.root, &leave}} {
			fd, err := unix.Open(filepath.Join(f.dir, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				closeAll()
				return nil, nil, nil, &fs.PathError{Op: "open", Path: f.dir + "/tasks", Err: err}
			}
			*f.fds = append(*f.fds, fd)
		}
	}
	return enter, leave, closeAll, nil
}

// memoryKills returns how many processes the kernel has killed because of the limit
// of memory.
func (b *bounds) memoryKills() int64 {
	if b.events == "" {
		return 0
	}
	text, err := read(b.events)
	if err != nil {
		return 0
	}
	return field(text, "oom_kill ")
}

// throttled returns in how many periods the limit of processor time was reached.
func (b *bounds) throttled() int64 {
	if b.cpu == "" {
		return 0
	}
	text, err := read(b.cpu)
	if err != nil {
		return 0
	}
	return field(text, "nr_throttled ")
}

// remove removes the groups, which have no processes.
func (b *bounds) remove() {
	for _, group := range b.groups {
		_ = os.Remove(group.dir) // else it is removed with the launcher
	}
}
