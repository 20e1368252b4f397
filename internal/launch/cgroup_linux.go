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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/forkexec"
)

// groups provides control groups. It reuses them, because making and removing a
// group costs more than starting a process in it.
type groups struct {
	tree      string // the owner's v2 directory
	pids      string // the owner's v1 pids directory; empty if not used
	pidsV2    bool   // the v2 groups limit pids
	homeTasks int    // tasks file of this process's v1 pids group; -1 if not used
	v2        controllers

	mu       sync.Mutex
	free     []*slot
	nonEmpty []*slot // released with live processes
	busy     int     // number of groups in use with open files
	ready    int     // number of free groups with open files
	closed   bool
	made     int
	ahead    ahead
	starter  *forkexec.Starter // nil if it does not work here, or is not ready
}

// slot is one control group, or a pair of them.
type slot struct {
	dir   string // v2
	pids  string // v1; empty if not used
	limit int    // value of pids.max; zero for no limit
	// bounds are the other limits. A group that has any is used once.
	bounds bounds
	single bool

	counter string      // the file with the number of processes; empty if there is none
	events  string      // the file with the number of forks that the limit refused; empty if there is none
	refused int64       // that number when the group was free
	killed  bool        // cgroup.kill was used: the kernel kills every process cloned into it later
	files   *groupFiles // nil if not open
}

const baseName = "spool" // of our directory in a hierarchy

// newGroups makes the owner's directories and checks that they work.
func newGroups(owner string) (_ *groups, err error) {
	r, err := findRoots()
	if err != nil {
		return nil, err
	}
	if r.v2 == "" {
		return nil, errors.New("no cgroup v2 hierarchy")
	}
	g := &groups{tree: filepath.Join(r.v2, baseName, owner), homeTasks: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	if err := os.MkdirAll(g.tree, 0o755); err != nil {
		return nil, err
	}
	s, err := g.makeSlot()
	if err != nil {
		return nil, err
	}
	if err := g.probe(s); err != nil {
		return nil, fmt.Errorf("start in a control group: %w", err)
	}
	g.limitV2(s)
	if !g.pidsV2 && r.pids != "" {
		g.limitV1(r.pids, owner, s)
	}
	g.release(s)
	if starter, err := forkexec.NewStarter(); err == nil { // before many files are open
		g.ahead.wg.Go(func() { g.tryStarter(starter) })
	}
	return g, nil
}

// limitV2 enables the pids controller if possible.
func (g *groups) limitV2(s *slot) {
	err := g.delegate("pids", func() error {
		if err := s.setLimit(filepath.Join(s.dir, "pids.max"), 1<<10); err != nil {
			return err
		}
		return g.probe(s)
	})
	if err != nil {
		s.limit = 0
		return
	}
	g.pidsV2 = true
	s.counter, s.events = s.dir+"/pids.current", s.dir+"/pids.events"
}

// limitV1 uses the v1 hierarchy for the limit if it works.
func (g *groups) limitV1(root, owner string, s *slot) {
	home, err := unix.Open(filepath.Join(root, "tasks"), unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	g.homeTasks = home
	g.pids = filepath.Join(root, baseName, owner)
	if err := os.MkdirAll(g.pids, 0o755); err == nil {
		if err = g.addPids(s); err == nil {
			if err = s.setLimit(filepath.Join(s.pids, "pids.max"), 1<<10); err == nil && g.probe(s) == nil {
				return
			}
		}
	}
	if s.pids != "" {
		_ = os.Remove(s.pids)
	}
	_ = os.Remove(g.pids)
	_ = unix.Close(home)
	g.homeTasks, g.pids, s.pids, s.counter, s.events, s.limit = -1, "", "", "", "", 0
}

// noProgram is the path of a program that does not exist.
const noProgram = "/nonexistent/spool-probe"

// probe checks that a process can start in the group: it starts a program that
// does not exist, which fails only at its exec.
func (g *groups) probe(s *slot) error {
	_, err := g.fork(s, noProgram, []string{"spool-probe"}, &syscall.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}}, syscall.ForkExec, nil)
	if err == syscall.ENOENT {
		return nil
	}
	if err == nil {
		err = errors.New("started a program that does not exist")
	}
	return err
}

func (g *groups) limitsPids() bool { return g.pidsV2 || g.pids != "" }

// acquire returns an empty group with the limits of a command.
func (g *groups) acquire(c *Command) (*slot, error) {
	limit := c.Pids
	single := c.Memory > 0 || c.CPUs > 0
	g.mu.Lock()
	var s *slot
	if n := len(g.free); n > 0 && !single {
		s = g.free[n-1]
		g.free = g.free[:n-1]
		if s.files != nil {
			g.ready--
			g.busy++
		}
	}
	if !single {
		g.ahead.limit = limit
		g.ahead.needed = g.ahead.needed || s == nil
		g.fill()
	}
	g.mu.Unlock()
	if s == nil && !single {
		s = g.reclaim()
	}
	if s == nil {
		var err error
		if s, err = g.makeSlot(); err != nil {
			return nil, err
		}
		s.single = single
	}
	if single {
		if err := g.limit(s, c); err != nil {
			g.release(s)
			return nil, err
		}
	}
	if s.limit != limit && g.limitsPids() {
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

// reclaimTries is how many released groups with live processes a start checks.
const reclaimTries = 4

// reclaim returns a group that has become empty since its release.
func (g *groups) reclaim() *slot {
	for range reclaimTries {
		g.mu.Lock()
		if len(g.nonEmpty) == 0 {
			g.mu.Unlock()
			return nil
		}
		s := g.nonEmpty[0]
		g.nonEmpty = g.nonEmpty[1:]
		g.mu.Unlock()
		switch {
		case !s.empty():
			g.mu.Lock()
			g.nonEmpty = append(g.nonEmpty, s)
			g.mu.Unlock()
		case s.killed || s.single:
			s.remove()
		default:
			s.refused = s.refusals() // also those since the release
			return s
		}
	}
	return nil
}

func (g *groups) makeSlot() (*slot, error) {
	g.mu.Lock()
	g.made++
	name := strconv.Itoa(g.made)
	g.mu.Unlock()
	s := &slot{dir: filepath.Join(g.tree, name)}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, err
	}
	if g.pidsV2 {
		s.counter, s.events = s.dir+"/pids.current", s.dir+"/pids.events"
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
	s.pids, s.counter, s.events = dir, dir+"/pids.current", dir+"/pids.events"
	g.mu.Lock()
	g.closeFiles(s, &g.busy) // they were opened without it
	g.mu.Unlock()
	return nil
}

// release returns a group. The caller must not use it any more.
func (g *groups) release(s *slot) {
	empty := s.empty()
	once := s.killed || s.single
	if empty && !once {
		s.refused = s.refusals()
	}
	g.mu.Lock()
	g.prepareFiles(s, empty && !once)
	switch {
	case !empty:
		g.nonEmpty = append(g.nonEmpty, s)
	case !once:
		g.free = append(g.free, s)
	}
	g.mu.Unlock()
	if empty && once { // without the lock: the kernel takes long
		s.remove()
	}
}

// remove removes an empty group. Closing the launcher removes a group that
// cannot be removed now.
func (s *slot) remove() {
	_ = os.Remove(s.dir)
	if s.pids != "" {
		_ = os.Remove(s.pids)
	}
	s.bounds.remove()
}

// forkFunc is [syscall.ForkExec], or what stands in its place.
type forkFunc = func(path string, argv []string, attr *syscall.ProcAttr) (pid int, err error)

// fork starts a program in the group, with forkExec called by on, or on any thread if on
// is nil.
func (g *groups) fork(s *slot, path string, argv []string, attr *syscall.ProcAttr, forkExec forkFunc, on func(func())) (pid int, err error) {
	in, err := g.openFiles(s)
	if err != nil {
		return 0, fmt.Errorf("open control group: %w", err)
	}
	defer g.leaveOpen(s)
	attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, in.dir
	pidsV1 := s.pids != "" && s.limit > 0
	if on == nil && !pidsV1 && len(s.bounds.groups) == 0 {
		return forkExec(path, argv, attr)
	}
	enter, leave, closeAll, err := s.bounds.files()
	if err != nil {
		return 0, fmt.Errorf("open control group: %w", err)
	}
	defer closeAll()

	// Clone cannot place a child into a v1 group. The child inherits the groups
	// of the forking thread, so that thread enters them and leaves them
	// afterwards.
	if pidsV1 {
		enter, leave = append(enter, in.tasks), append(leave, g.homeTasks)
	}
	if pidsV1 && s.limit == 1 { // space for the forking thread
		if err := write(filepath.Join(s.pids, "pids.max"), "2"); err != nil {
			return 0, fmt.Errorf("set pids limit: %w", err)
		}
		defer func() {
			if werr := write(filepath.Join(s.pids, "pids.max"), "1"); err == nil {
				err = werr
			}
		}()
	}
	forkInside := func() {
		runtime.LockOSThread()
		// "0" means the writing thread, which avoids a kernel lock on all
		// thread groups.
		entered := 0
		for ; entered < len(enter) && err == nil; entered++ {
			if _, err = unix.Write(enter[entered], []byte("0")); err != nil {
				err = fmt.Errorf("enter control group: %w", err)
			}
		}
		if err == nil {
			pid, err = forkExec(path, argv, attr)
		}
		for _, home := range leave[:entered] {
			if _, werr := unix.Write(home, []byte("0")); werr != nil {
				return // the thread stays locked, so that no other goroutine forks in the group
			}
		}
		runtime.UnlockOSThread()
	}
	if on == nil { // not on another goroutine, which would wake a thread while the child begins
		forkInside()
		return pid, err
	}
	done := make(chan struct{})
	on(func() {
		defer close(done)
		forkInside()
	})
	<-done
	return pid, err
}

// close kills all live processes and removes the directories.
func (g *groups) close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.ahead.wg.Wait()
	g.mu.Lock()
	for _, s := range g.free {
		g.closeFiles(s, &g.ready)
	}
	g.free, g.nonEmpty = nil, nil
	starter := g.starter
	g.starter = nil
	g.mu.Unlock()
	if starter != nil {
		_ = starter.Close() // nothing was written
	}
	if g.homeTasks >= 0 {
		_ = unix.Close(g.homeTasks)
		g.homeTasks = -1
	}
	_, err := sweepGroups(g.tree, g.pids)
	return err
}

// kill kills every process in the group.
func (s *slot) kill() error {
	s.killed = true
	return write(filepath.Join(s.dir, "cgroup.kill"), "1")
}

// pidList returns the processes in the group.
func (s *slot) pidList() ([]int, error) { return readPids(s.dir + "/cgroup.procs") }

// empty reports whether the group has no processes, including unreaped ones
// that count against its limit. Reading the counter, if there is one, is much
// cheaper than listing the processes, which locks out starts.
func (s *slot) empty() bool {
	if s.files != nil && s.files.counter >= 0 && s.limit > 0 {
		return s.files.isEmpty()
	}
	if s.counter != "" && s.limit > 0 { // without a limit the counter is not maintained
		b, err := read(s.counter)
		return err == nil && string(bytes.TrimSpace(b)) == "0"
	}
	list, err := s.pidList()
	return err == nil && len(list) == 0
}

// refusals returns how many forks the limit of processes has refused since the group
// was made.
func (s *slot) refusals() int64 {
	if s.events == "" {
		return 0
	}
	if s.files != nil && s.files.events >= 0 {
		var b [64]byte
		n, err := unix.Pread(s.files.events, b[:], 0)
		if err != nil {
			return 0
		}
		return field(b[:n], "max ")
	}
	b, err := read(s.events)
	if err != nil { // the kernel does not count them
		return 0
	}
	return field(b, "max ")
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

// read returns the content of a control file. It is called for every run and
// avoids [os.File], which would register with the runtime's poller.
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

// write writes to an existing file.
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

// sweepTime limits how long removing groups waits for their processes to end.
const sweepTime = 30 * time.Second

// sweepGroups kills every process in an owner's groups and removes the groups.
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
	for _, dir := range subdirs(pids) { // processes that left the v2 group but not this one
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
		_ = os.Remove(filepath.Dir(root)) // fails if others use it
	}
	return killed, errors.Join(errs...)
}

// removeGroup removes a group once its processes have ended.
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
