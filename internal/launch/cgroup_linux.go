package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/crew"
)

// roots are the directories below which this process may make control groups.
type roots struct {
	v2   string // empty if there is no v2 hierarchy
	pids string // of the v1 pids hierarchy; empty if there is none
}

// findRoots looks up the groups this process is in.
func findRoots() (roots, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return roots{}, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return roots{}, err
	}
	return parseRoots(string(mounts), string(own)), nil
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
			r.v2 = below(at, root, v2)
		case t[0] == "cgroup" && hasWord(t[2], "pids") && pids != "" && r.pids == "":
			r.pids = below(at, root, pids)
		}
	}
	return r
}

// below says where a group is in a mount that shows the hierarchy from root
// on, or "" if the mount does not show it.
func below(mount, root, group string) string {
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

// groups hands out control groups. They are reused, because making and
// removing one costs more than starting a process in it.
type groups struct {
	tree   string    // the owner's v2 directory
	pids   string    // the owner's v1 pids directory; empty if that is not used
	pidsV2 bool      // the v2 groups limit pids themselves
	home   int       // tasks file of our own v1 pids group; -1 if not used
	crew   crew.Crew // forks from such threads

	mu     sync.Mutex
	free   []*slot
	linger []*slot // released while something still lived in them
	busy   int     // how many in use are open
	ready  int     // how many of the free ones are
	closed bool
	made   int
}

// slot is one control group, or a pair of them.
type slot struct {
	dir   string // v2
	pids  string // v1; empty if not used
	limit int    // what pids.max says; zero for no limit

	counter string // the file that says how many are in it; empty if there is none
	spent   bool   // cgroup.kill was used: the kernel ends whatever is cloned into it from then on
	door    *door  // nil if it is not kept open
}

const baseName = "spool" // of our directory in a hierarchy

// newGroups makes the owner's directories and proves that they work.
func newGroups(owner string) (_ *groups, err error) {
	r, err := findRoots()
	if err != nil {
		return nil, err
	}
	if r.v2 == "" {
		return nil, errors.New("no cgroup v2 hierarchy")
	}
	g := &groups{tree: filepath.Join(r.v2, baseName, owner), home: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if err := os.MkdirAll(g.tree, 0o755); err != nil {
		return nil, err
	}
	s, err := g.mkslot()
	if err != nil {
		return nil, err
	}
	if err := g.try(s); err != nil {
		return nil, fmt.Errorf("start in a control group: %w", err)
	}
	g.limitV2(r.v2, s)
	if !g.pidsV2 && r.pids != "" {
		g.limitV1(r.pids, owner, s)
	}
	g.release(s)
	return g, nil
}

// limitV2 turns the pids controller on where it can be. That may turn the
// groups into ones that take no processes, so it is tried, and undone.
func (g *groups) limitV2(root string, s *slot) {
	have, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil || !hasWord(strings.Join(strings.Fields(string(have)), ","), "pids") {
		return
	}
	var on []string
	for _, dir := range []string{root, filepath.Dir(g.tree), g.tree} {
		f := filepath.Join(dir, "cgroup.subtree_control")
		was, err := os.ReadFile(f)
		if err != nil {
			break
		}
		if hasWord(strings.Join(strings.Fields(string(was)), ","), "pids") {
			continue
		}
		if err := write(f, "+pids"); err != nil {
			break
		}
		on = append(on, f)
	}
	if err := s.setLimit(filepath.Join(s.dir, "pids.max"), 1<<10); err == nil && g.try(s) == nil {
		g.pidsV2 = true
		s.counter = s.dir + "/pids.current"
		return
	}
	s.limit = 0
	for i := len(on) - 1; i >= 0; i-- {
		_ = write(on[i], "-pids") // as good as we found it, or no worse
	}
}

// limitV1 uses the v1 hierarchy for the limit, if that works.
func (g *groups) limitV1(root, owner string, s *slot) {
	home, err := unix.Open(filepath.Join(root, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	g.home = home
	g.pids = filepath.Join(root, baseName, owner)
	if err := os.MkdirAll(g.pids, 0o755); err == nil {
		if err = g.addPids(s); err == nil {
			if err = s.setLimit(filepath.Join(s.pids, "pids.max"), 1<<10); err == nil && g.try(s) == nil {
				return
			}
		}
	}
	if s.pids != "" {
		_ = os.Remove(s.pids)
	}
	_ = os.Remove(g.pids)
	_ = unix.Close(home)
	g.home, g.pids, s.pids, s.counter, s.limit = -1, "", "", "", 0
}

// try starts nothing in the group: a program that does not exist gets as far
// as its exec, which is all there is to prove.
func (g *groups) try(s *slot) error {
	_, err := g.fork(s, "/nonexistent/spool-probe", []string{"spool-probe"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
	if err == syscall.ENOENT {
		return nil
	}
	if err == nil {
		err = errors.New("a program that does not exist was started")
	}
	return err
}

func (g *groups) limits() bool { return g.pidsV2 || g.pids != "" }

// acquire returns an empty group with the limit set.
func (g *groups) acquire(limit int) (*slot, error) {
	g.mu.Lock()
	var s *slot
	if n := len(g.free); n > 0 {
		s = g.free[n-1]
		g.free = g.free[:n-1]
		if s.door != nil {
			g.ready--
			g.busy++
		}
	}
	g.mu.Unlock()
	if s == nil {
		s = g.recover()
	}
	if s == nil {
		var err error
		if s, err = g.mkslot(); err != nil {
			return nil, err
		}
	}
	if s.limit != limit && g.limits() {
		if err := s.setLimit(g.limitFile(s), limit); err != nil {
			g.release(s)
			return nil, err
		}
	}
	return s, nil
}

func (g *groups) limitFile(s *slot) string {
	if g.pidsV2 {
		return filepath.Join(s.dir, "pids.max")
	}
	return filepath.Join(s.pids, "pids.max")
}

// lookBack is how many groups that were left inhabited a start looks at.
const lookBack = 4

// recover finds a group that has become empty since it was released.
func (g *groups) recover() *slot {
	for range lookBack {
		g.mu.Lock()
		if len(g.linger) == 0 {
			g.mu.Unlock()
			return nil
		}
		s := g.linger[0]
		g.linger = g.linger[1:]
		g.mu.Unlock()
		switch {
		case !s.empty():
			g.mu.Lock()
			g.linger = append(g.linger, s)
			g.mu.Unlock()
		case s.spent:
			s.remove()
		default:
			return s
		}
	}
	return nil
}

func (g *groups) mkslot() (*slot, error) {
	g.mu.Lock()
	g.made++
	name := strconv.Itoa(g.made)
	g.mu.Unlock()
	s := &slot{dir: filepath.Join(g.tree, name)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if g.pidsV2 {
		s.counter = s.dir + "/pids.current"
	}
	if g.pids != "" {
		if err := g.addPids(s); err != nil {
			return nil, errors.Join(err, os.Remove(s.dir))
		}
	}
	return s, nil
}

func (g *groups) addPids(s *slot) error {
	dir := filepath.Join(g.pids, filepath.Base(s.dir))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	s.pids, s.counter = dir, dir+"/pids.current"
	g.mu.Lock()
	g.shutDoor(s, &g.busy) // it was opened without them
	g.mu.Unlock()
	return nil
}

// release takes a group back. Nothing may use it any more.
func (g *groups) release(s *slot) {
	empty := s.empty()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.readyDoor(s, empty && !s.spent)
	switch {
	case !empty:
		g.linger = append(g.linger, s)
	case s.spent:
		s.remove()
	default:
		g.free = append(g.free, s)
	}
}

// remove removes an empty group. One that cannot be removed now is when the
// launcher is closed.
func (s *slot) remove() {
	_ = os.Remove(s.dir)
	if s.pids != "" {
		_ = os.Remove(s.pids)
	}
}

// fork starts a program in the group.
func (g *groups) fork(s *slot, path string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	in, err := g.openDoor(s)
	if err != nil {
		return 0, fmt.Errorf("open control group: %w", err)
	}
	defer g.leaveDoor(s)
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, in.dir
	if s.pids == "" || s.limit == 0 {
		return syscall.ForkExec(path, argv, attr)
	}

	// A v1 group cannot be cloned into. The child inherits the group of
	// the thread that forks it, so that thread goes there and comes back.
	if s.limit == 1 { // room for the forking thread
		if err := write(filepath.Join(s.pids, "pids.max"), "2"); err != nil {
			return 0, fmt.Errorf("set pids limit: %w", err)
		}
		defer func() {
			if werr := write(filepath.Join(s.pids, "pids.max"), "1"); err == nil {
				err = werr
			}
		}()
	}
	done := make(chan struct{})
	g.crew.Go(func() {
		defer close(done)
		runtime.LockOSThread()
		// "0" means the writing thread and spares the kernel a lock on
		// all thread groups.
		if _, err = unix.Write(in.tasks, []byte("0")); err != nil {
			err = fmt.Errorf("enter pids group: %w", err)
			runtime.UnlockOSThread()
			return
		}
		pid, err = syscall.ForkExec(path, argv, attr)
		if _, werr := unix.Write(g.home, []byte("0")); werr != nil {
			runtime.Goexit() // and with it the thread, which stays locked
		}
		runtime.UnlockOSThread()
	})
	<-done
	return pid, err
}

// close ends whatever still lives and removes the directories.
func (g *groups) close() error {
	g.crew.Wait()
	g.mu.Lock()
	g.closed = true
	for _, s := range g.free {
		g.shutDoor(s, &g.ready)
	}
	g.free, g.linger = nil, nil
	g.mu.Unlock()
	if g.home >= 0 {
		_ = unix.Close(g.home)
		g.home = -1
	}
	_, err := sweepGroups(g.tree, g.pids)
	return err
}

// kill ends everything in the group.
func (s *slot) kill() error {
	s.spent = true
	return write(filepath.Join(s.dir, "cgroup.kill"), "1")
}

// pidList returns the processes in the group.
func (s *slot) pidList() ([]int, error) { return readPids(s.dir + "/cgroup.procs") }

// empty reports whether nothing lives in the group, and nothing unreaped
// counts against its limit. Where that is counted, asking for the number is
// much cheaper than asking who it is: the latter locks out starts.
func (s *slot) empty() bool {
	if s.door != nil && s.door.counter >= 0 && s.limit > 0 {
		return s.door.isEmpty()
	}
	if s.counter != "" && s.limit > 0 { // without a limit nobody was counted
		b, err := read(s.counter)
		return err == nil && string(bytes.TrimSpace(b)) == "0"
	}
	list, err := s.pidList()
	return err == nil && len(list) == 0
}

func (s *slot) setLimit(file string, limit int) error {
	text := "max"
	if limit > 0 {
		text = strconv.Itoa(limit)
	}
	if err := write(file, text); err != nil {
		return fmt.Errorf("set pids limit: %w", err)
	}
	s.limit = limit
	return nil
}

func readPids(file string) ([]int, error) {
	b, err := read(file)
	if err != nil {
		return nil, err
	}
	var list []int
	for f := range bytes.FieldsSeq(b) {
		pid, err := strconv.Atoi(string(f))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		list = append(list, pid)
	}
	return list, nil
}

// read returns what a control file says. It is called for every run, and an
// [os.File] would bother the runtime's poller each time.
func read(file string) ([]byte, error) {
	fd, closeFile, err := openControl(file, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer closeFile()
	b := make([]byte, 0, 256)
	for {
		n, err := unix.Read(fd, b[len(b):cap(b)])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return nil, &fs.PathError{Op: "read", Path: file, Err: err}
		case n == 0:
			return b, nil
		default:
			b = b[:len(b)+n]
		}
		if len(b) == cap(b) {
			b = slices.Grow(b, cap(b))
		}
	}
}

// write writes to a file that must exist already, as control files do.
func write(file, text string) error {
	fd, closeFile, err := openControl(file, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer closeFile()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// sweepTime bounds how long removing groups waits for their members to end.
const sweepTime = 5 * time.Second

// sweepGroups ends everything in an owner's groups and removes them.
func sweepGroups(tree, pids string) (killed int, err error) {
	var errs []error
	deadline := time.Now().Add(sweepTime)
	for _, dir := range subdirs(tree) {
		s := &slot{dir: dir}
		list, err := s.pidList()
		if err == nil && len(list) > 0 {
			killed += len(list)
			if err := s.kill(); err != nil {
				errs = append(errs, err)
			}
		}
	}
	for _, dir := range subdirs(pids) { // who left the v2 group but not this one
		list, err := readPids(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for _, pid := range list {
			if pid != os.Getpid() && unix.Kill(pid, unix.SIGKILL) == nil && tree == "" {
				killed++
			}
		}
	}
	for _, root := range []string{tree, pids} {
		if root == "" {
			continue
		}
		for _, dir := range append(subdirs(root), root) {
			if err := removeGroup(dir, deadline); err != nil {
				errs = append(errs, err)
			}
		}
		_ = os.Remove(filepath.Dir(root)) // unless others use it
	}
	return killed, errors.Join(errs...)
}

// removeGroup removes an empty group, waiting for those in it to be gone.
func removeGroup(dir string, deadline time.Time) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(wait)
	}
}

func subdirs(dir string) []string {
	if dir == "" {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var list []string
	for _, e := range entries {
		if e.IsDir() {
			list = append(list, filepath.Join(dir, e.Name()))
		}
	}
	return list
}
