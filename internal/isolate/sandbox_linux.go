//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/forkexec"
	"github.com/spool-run/spool/internal/seccomp"
)

// self is this program, also after its file was replaced by a newer one.
const self = "/proc/self/exe"

// sandbox is a set of namespaces with a first process in it. Programs that are
// started in it cost about as much as outside.
type sandbox struct {
	pid     int // of the first process
	mu      sync.Mutex
	pidfd   int // guarded by mu once the sandbox is made: a kill may come while it is closed
	control int // socket; closing it ends the sandbox
	ruleset *os.File
	filter  seccomp.Program
	key     *seccomp.Key // of the filter
	flags   uintptr      // the namespaces
	own     bool         // runs are the user 0 of the namespaces
	plain   bool         // runs keep the rights of this process
	nosuid  bool         // none of its mounts lets a file give rights
	gate    net.Listener // in its network, for a proxy; nil without one
	held    []*placeholder
	guest   *guest  // the run is in gVisor; nil if its kernel is that of the machine
	leader  *leader // the program of the first process; nil for one that only waits

	starts sync.RWMutex // held for reading during a start
	closed bool         // guarded by starts

	threadMu sync.Mutex
	thread   *thread // starts programs; nil before the first one, guarded by threadMu
}

// setupTime bounds how long a sandbox may take to be made.
const setupTime = 20 * time.Second

// initEnv is the environment of the first process.
var initEnv = []string{"GOMAXPROCS=1", "GOGC=off"}

// newSandbox makes a sandbox for runs with the policy, with a first process of the
// spares, which may be nil, if there is one.
func newSandbox(p *Policy, subuid bool, landlock int, from *spares) (*sandbox, error) {
	return newSandboxFor(nil, p, subuid, landlock, from)
}

// newSandboxFor is [newSandbox] for a guest, which it then owns, or for runs without
// one.
func newSandboxFor(g *guest, p *Policy, subuid bool, landlock int, from *spares) (_ *sandbox, err error) {
	s := &sandbox{pidfd: -1, control: -1, own: subuid, nosuid: true, guest: g, leader: p.leader}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	own := p.Need.Has(NoNetwork) || p.proxied()
	s.flags = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	n := hostNetwork
	if own {
		s.flags |= unix.CLONE_NEWNET
		n = ownNetwork
	}
	s.key = seccomp.NewKey()
	s.filter = newFilter(n, s.key)
	if err := from.begin(s); err != nil {
		return nil, err
	}
	if err := s.writeMaps(subuid); err != nil {
		return nil, err
	}
	l := &layout{Own: subuid, Network: own, Gate: p.proxied(), Tmp: !p.HostTmp && p.leader == nil, Landlock: landlock, Readable: p.reads(),
		Bare: p.Bare, Links: p.links, Open: p.writesAll(), Guest: g != nil, Hollow: p.leader != nil}
	if err := s.plan(p, l); err != nil {
		return nil, err
	}
	fds, err := l.trees(s.pid, subuid)
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := sendLayout(s.control, l, fds); err != nil {
		return nil, fmt.Errorf("describe the sandbox: %w", err)
	}
	if err := s.await(); err != nil {
		return nil, err
	}
	from.fill(s.flags)
	return s, nil
}

// begin starts the first process, in new namespaces.
func (s *sandbox) begin() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	s.control = pair[0]
	defer unix.Close(pair[1])
	timeout := unix.NsecToTimeval(int64(setupTime))
	if err := unix.SetsockoptTimeval(s.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	first := s.leader
	if first == nil {
		n := uintptr(null)
		first = &leader{path: self, argv: []string{"spool", Role, "init"}, env: initEnv, stdio: [3]uintptr{n, n, n}}
	}
	c := &child{join: none, ruleset: none, ambient: s.flags&unix.CLONE_NEWUSER != 0, setsid: true,
		files: append(append(first.stdio[:], uintptr(pair[1])), first.files...)}
	c.clone.flags = uint64(s.flags)
	if err := c.program(first.path, first.argv, first.env, "/"); err != nil {
		return err
	}
	if s.pid, err = c.start(); err != nil {
		return err
	}
	if s.pidfd, err = unix.PidfdOpen(s.pid, 0); err != nil {
		return fmt.Errorf("open the first process of a sandbox: %w", err)
	}
	return s.await()
}

// await reads an answer of the first process.
func (s *sandbox) await() error {
	var a answer
	fds, err := receive(s.control, &a)
	if err == nil && a.Gate && len(fds) > 0 {
		s.gate, err = listener(fds[0])
		fds = fds[1:]
	}
	for i, fd := range fds {
		if i == 0 && s.ruleset == nil {
			s.ruleset = os.NewFile(uintptr(fd), "ruleset")
		} else {
			_ = unix.Close(fd)
		}
	}
	switch {
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("the sandbox was not ready after %v", setupTime)
	case err != nil:
		return fmt.Errorf("hear of the sandbox: %w", err)
	case a.Errno != 0:
		return &StepError{a.Call, syscall.Errno(a.Errno)}
	case a.Call != "":
		return fmt.Errorf("%s: %s", a.Call, a.Text)
	}
	return nil
}

// listener returns the listener of a descriptor, which it closes.
func listener(fd int) (net.Listener, error) {
	f := os.NewFile(uintptr(fd), "listener")
	defer f.Close()
	return net.FileListener(f)
}

// The users of a sandbox that root makes: none of them owns a file.
const (
	firstSubuid = 0x5b01_0000
	subuids     = 65536
)

// writeMaps says which users there are in the namespaces.
func (s *sandbox) writeMaps(subuid bool) error {
	dir := "/proc/" + strconv.Itoa(s.pid) + "/"
	uid, gid := os.Geteuid(), os.Getegid()
	uids, gids := fmt.Sprintf("%d %d 1", uid, uid), fmt.Sprintf("%d %d 1", gid, gid)
	if s.guest != nil { // runsc must be root of the namespaces
		uids, gids = fmt.Sprintf("0 %d 1", uid), fmt.Sprintf("0 %d 1", gid)
	}
	if subuid {
		uids = fmt.Sprintf("0 %d %d", firstSubuid, subuids)
		gids = uids
	} else if err := os.WriteFile(dir+"setgroups", []byte("deny"), 0); err != nil {
		return try(err, "write setgroups")
	}
	if err := os.WriteFile(dir+"gid_map", []byte(gids), 0); err != nil {
		return try(err, "write gid_map")
	}
	return try(os.WriteFile(dir+"uid_map", []byte(uids), 0), "write uid_map")
}

// plan fills in the mounts of a sandbox.
func (s *sandbox) plan(p *Policy, l *layout) error {
	kinds := make(map[string]string)
	private := func(path string) bool { return !p.HostTmp && (Below("/tmp", path) || Below("/var/tmp", path)) }
	if !p.Bare && private(p.Cwd) {
		kinds[p.Cwd] = mountReadable
	}
	for _, path := range p.Readable {
		if Below("/proc", path) || Below("/dev", path) { // they are its own
			continue
		}
		if _, err := os.Lstat(path); err == nil && (p.Bare || private(path)) {
			kinds[path] = mountReadable
		}
	}
	for _, path := range p.Writable {
		kinds[path] = mountWritable
		if path == "/tmp" {
			l.Tmp = false
		}
	}
	if p.Overlay != nil {
		kinds[p.Overlay.Base] = mountOverlay
	}
	for _, path := range p.Protected {
		// A directory between the two could be renamed, and another put in
		// its place: a mount cannot.
		for dir := filepath.Dir(path); !slices.Contains(p.Writable, dir) && dir != "/"; dir = filepath.Dir(dir) {
			if kinds[dir] == "" {
				kinds[dir] = mountWritable
				if p.Overlay != nil && Below(p.Overlay.Base, dir) {
					kinds[dir] = mountPinned
				}
			}
		}
		kinds[path] = mountReadable
		h, err := hold(path)
		if err != nil {
			return err
		}
		if h != nil {
			s.held = append(s.held, h)
		}
	}
	for _, path := range p.Hidden {
		kinds[path] = mountHidden
	}
	maps.DeleteFunc(kinds, func(path, kind string) bool { return kind != mountHidden && p.hides(path) })
	delete(kinds, "/") // it is the tree itself
	for path, kind := range kinds {
		m := mount{Path: path, Kind: kind}
		if kind == mountOverlay {
			m.Dir = p.Overlay.Dir
		}
		l.Mounts = append(l.Mounts, m)
	}
	for _, place := range p.places {
		l.Mounts = append(l.Mounts, mount{Path: place.From, To: place.To, Kind: mountReadable})
	}
	slices.SortFunc(l.Mounts, func(a, b mount) int { return strings.Compare(a.Path, b.Path) })
	return nil
}

// hides reports whether a path is below a hidden one: only a writable path is an
// exception.
func (p *Policy) hides(path string) bool {
	return slices.ContainsFunc(p.Hidden, func(hidden string) bool {
		return Below(hidden, path) && !slices.ContainsFunc(p.Writable, func(root string) bool {
			return root != hidden && Below(hidden, root) && Below(root, path)
		})
	})
}

func sendLayout(control int, l *layout, fds []int) error {
	if len(fds) == 0 {
		return send(control, l)
	}
	return sendFDs(control, l, fds)
}

// program sets what the child executes.
func (c *child) program(path string, argv, env []string, dir string) (err error) {
	if c.path, err = cString(path); err != nil {
		return err
	}
	if dir != "" {
		if c.dir, err = cString(dir); err != nil {
			return err
		}
	}
	args, err := syscall.SlicePtrFromStrings(argv)
	if err != nil {
		return err
	}
	vars, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return err
	}
	c.argv, c.envv = &args[0], &vars[0]
	return nil
}

// fork starts a program in the sandbox, as [syscall.ForkExec] does outside. It is a
// child of this process.
func (s *sandbox) fork(path string, argv []string, attr *syscall.ProcAttr, l rlimits) (int, error) {
	s.starts.RLock()
	defer s.starts.RUnlock()
	if s.closed {
		return 0, errors.New("the sandbox has ended")
	}
	c := &child{join: uintptr(s.pidfd), joinFlags: s.flags, owner: true, setUser: s.own, dropCaps: !s.plain, nosuid: s.nosuid, ruleset: none}
	if s.filter != nil {
		s.inherit(c)
	}
	if s.ruleset != nil {
		c.ruleset = s.ruleset.Fd()
	}
	if s.own {
		for _, fd := range attr.Files {
			if err := give(int(fd)); err != nil {
				return 0, err
			}
		}
	}
	if s.guest != nil {
		return s.forkGuest(path, argv, attr, l)
	}
	return c.forkExec(path, argv, attr, l)
}

// on returns what calls a function on the thread that starts programs; nil if any may.
func (s *sandbox) on() func(func()) {
	if s.filter == nil || s.guest != nil {
		return nil
	}
	return s.onThread
}

// onThread calls a function on the thread of the sandbox. Without one a program that
// the function starts has to install the filter itself.
func (s *sandbox) onThread(f func()) {
	if t := s.starter(); t != nil {
		t.do(f)
	} else {
		go f()
	}
}

// starter returns the thread that starts programs. It is nil if there can be none.
func (s *sandbox) starter() *thread {
	s.starts.RLock()
	defer s.starts.RUnlock()
	if s.closed {
		return nil
	}
	s.threadMu.Lock()
	defer s.threadMu.Unlock()
	if s.thread == nil || s.thread.over() {
		s.thread, _ = newThread(s.filter, s.key, s.pidfd)
	}
	return s.thread
}

// inherit has a child get the filter from this thread if it is that of the sandbox, else
// by itself.
func (s *sandbox) inherit(c *child) {
	s.threadMu.Lock()
	t := s.thread
	s.threadMu.Unlock()
	if t == nil || !t.here() {
		c.filter = program(s.filter)
		return
	}
	c.key, c.inherits = t.key, true
	if t.inside {
		c.joinFlags &^= unix.CLONE_NEWPID
	} else {
		c.between = true
	}
}

// terminals is the major number of the terminals in /dev/pts.
const terminals = 136

// give makes the user of a sandbox the owner of a pipe or terminal, which it can
// then open again, as /dev/stdout.
func give(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat descriptor %d: %w", fd, err)
	}
	kind := st.Mode & unix.S_IFMT
	if st.Uid == firstSubuid || kind != unix.S_IFIFO && (kind != unix.S_IFCHR || unix.Major(st.Rdev) != terminals) {
		return nil
	}
	if err := unix.Fchown(fd, firstSubuid, firstSubuid); err != nil {
		return fmt.Errorf("give descriptor %d to the sandbox: %w", fd, err)
	}
	return nil
}

// forkExec completes a child from the attributes of a start and starts it.
func (c *child) forkExec(path string, argv []string, attr *syscall.ProcAttr, l rlimits) (int, error) {
	c.files, c.nofile = attr.Files, forkexec.SoftNofile()
	if l.files > 0 {
		c.nofile = &unix.Rlimit{Cur: uint64(l.files), Max: uint64(l.files)}
	}
	if l.processes > 0 {
		c.nproc = &unix.Rlimit{Cur: uint64(l.processes), Max: uint64(l.processes)}
	}
	if sys := attr.Sys; sys != nil {
		c.setsid, c.setctty = sys.Setsid, sys.Setctty
		if sys.UseCgroupFD {
			c.clone.flags |= unix.CLONE_INTO_CGROUP
			c.clone.cgroup = uint64(sys.CgroupFD)
		}
	}
	if err := c.program(path, argv, attr.Env, attr.Dir); err != nil {
		return 0, err
	}
	pid, err := c.start()
	if err == nil && attr.Sys != nil && attr.Sys.PidFD != nil {
		if *attr.Sys.PidFD, err = unix.PidfdOpen(pid, 0); err != nil {
			_ = unix.Kill(pid, unix.SIGKILL)
			reap(pid)
			return 0, fmt.Errorf("open pidfd: %w", err)
		}
	}
	return pid, err
}

// kill ends every process in the sandbox.
func (s *sandbox) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pidfd >= 0 {
		_ = unix.PidfdSendSignal(s.pidfd, unix.SIGKILL, nil, 0) // or it has ended
	}
}

// abandon does to the sandbox what the end of this process would do, for tests of what
// is left then.
func (s *sandbox) abandon() {
	_ = unix.Close(s.control)
	s.control = -1
}

// alive reports whether programs can be started in the sandbox.
func (s *sandbox) alive() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	fds := []unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return n <= 0 && (err == nil || err == unix.EINTR) // a signal interrupts it only if it has nothing to report
}

// traces reports whether there are directories that protect a path which did not
// exist. Outside they look as if somebody had made them, such as a repository.
func (s *sandbox) traces() bool {
	return slices.ContainsFunc(s.held, (*placeholder).made)
}

// gateway returns the listener in the sandbox's network that a proxy may serve.
func (s *sandbox) gateway() net.Listener { return s.gate }

// close ends the sandbox and every process in it.
func (s *sandbox) close() {
	s.kill()
	s.starts.Lock() // after those that are under way
	s.closed = true
	s.starts.Unlock()
	if s.thread != nil {
		s.thread.close()
	}
	if s.pid > 0 {
		if s.pidfd < 0 {
			_ = unix.Kill(s.pid, unix.SIGKILL)
		}
		reap(s.pid)
	}
	s.mu.Lock()
	for _, fd := range []int{s.pidfd, s.control} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	s.pidfd = -1
	s.mu.Unlock()
	if s.ruleset != nil {
		_ = s.ruleset.Close()
	}
	if s.gate != nil {
		_ = s.gate.Close()
	}
	if s.guest != nil {
		s.guest.close()
	}
	for _, h := range s.held {
		h.release()
	}
	s.pid, s.control, s.ruleset, s.held, s.thread = 0, -1, nil, nil, nil
}
