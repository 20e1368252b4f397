package launch

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/failpoint"
)

// ErrNoPidsLimit is the error of Start for a limit that this machine cannot
// enforce.
var ErrNoPidsLimit = errors.New("the number of processes cannot be limited here")

// maxForking limits concurrent starts. Each blocks a thread until its program
// executes, and the runtime never frees threads.
const maxForking = 32

// Launcher starts processes and keeps their trees.
type Launcher struct {
	owner   string
	groups  *groups // nil if trees are found by a search
	walk    *walker // nil if there are control groups
	ignored chan os.Signal
	starts  atomic.Uint64
	forking chan struct{} // holds one element per start
	users   int           // guarded by shared.mu
}

// shared holds the launchers of this process with a chosen owner: the engines
// of a host start processes under one name.
var shared struct {
	mu      sync.Mutex
	byOwner map[string]*Launcher
}

// New finds the available mechanism and returns a launcher. Callers with the
// same owner share one launcher; each of them must close it.
func New(o Options) (*Launcher, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if l, ok := shared.byOwner[o.Owner]; ok {
		l.users++
		l.prepare(o.Spares)
		return l, nil
	}
	l, err := newLauncher(o)
	if err != nil {
		return nil, err
	}
	l.users = 1
	l.prepare(o.Spares)
	if shared.byOwner == nil {
		shared.byOwner = make(map[string]*Launcher)
	}
	shared.byOwner[l.owner] = l
	return l, nil
}

func newLauncher(o Options) (*Launcher, error) {
	l := &Launcher{owner: o.Owner, forking: make(chan struct{}, maxForking)}
	if l.owner == "" {
		l.owner = strconv.Itoa(os.Getpid()) + "-" + rand.Text()[:10]
	}
	if err := checkOwner(l.owner); err != nil {
		return nil, err
	}
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return nil, fmt.Errorf("open pidfd: %w", err)
	}
	_ = unix.Close(fd)
	reserve.fill()

	var cause error
	switch o.Mode {
	case TreeAuto, TreeCgroup:
		if l.groups, cause = newGroups(l.owner); cause == nil {
			break
		}
		if o.Mode == TreeCgroup {
			return nil, fmt.Errorf("use control groups: %w", cause)
		}
		fallthrough
	case TreeWalk:
		if l.walk, err = newWalker(); err != nil {
			return nil, errors.Join(cause, err)
		}
	default:
		return nil, fmt.Errorf("unknown tree mode %q", o.Mode)
	}
	// Go opens files close-on-exec, but this process may have inherited
	// descriptors that no child should see.
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	l.resetIgnoredSignals()
	return l, nil
}

// prepare has control groups made ahead, if there are any.
func (l *Launcher) prepare(spares int) {
	if l.groups != nil {
		l.groups.prepare(spares)
	}
}

func checkOwner(owner string) error {
	if owner == "" || owner == "." || owner == ".." || strings.ContainsAny(owner, "/\x00\n") || len(owner) > 200 {
		return fmt.Errorf("invalid owner name %q", owner)
	}
	return nil
}

// resetIgnoredSignals makes children start with default signal dispositions. An ignored
// signal stays ignored across exec, and nohup and shells start this process
// with some. A handled signal does not, so install handlers that do nothing.
func (l *Launcher) resetIgnoredSignals() {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	var sigs []os.Signal
	for line := range strings.Lines(string(status)) {
		hex, ok := strings.CutPrefix(line, "SigIgn:")
		if !ok {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return
		}
		for n := range 64 {
			if mask&(1<<n) != 0 {
				sigs = append(sigs, syscall.Signal(n+1))
			}
		}
	}
	if len(sigs) > 0 {
		l.ignored = make(chan os.Signal, 1)
		signal.Notify(l.ignored, sigs...)
	}
}

// Owner is the name under which [SweepOwner] finds this launcher's processes.
func (l *Launcher) Owner() string { return l.owner }

// Guarantees returns what this launcher can promise.
func (l *Launcher) Guarantees() Guarantees {
	if l.groups != nil {
		return Guarantees{Kill: KillCgroup, Pids: l.groups.limitsPids()}
	}
	return Guarantees{Kill: KillWalk}
}

// TryLimits returns an error if a tree cannot have these limits of memory and
// processor time here. Zero means no limit.
func (l *Launcher) TryLimits(memory int64, cpus float64) error {
	if memory == 0 && cpus == 0 {
		return nil
	}
	c := Command{Memory: memory, CPUs: cpus}
	if err := l.checkLimits(&c); err != nil {
		return err
	}
	s, err := l.groups.acquire(&c)
	if err != nil {
		return err
	}
	l.groups.release(s)
	return nil
}

// checkLimits returns an error for limits that need control groups if there are
// none.
func (l *Launcher) checkLimits(c *Command) error {
	switch {
	case c.Pids > 0 && !l.Guarantees().Pids:
		return ErrNoPidsLimit
	case l.groups == nil && c.Memory > 0:
		return fmt.Errorf("%w: there are no control groups", ErrNoMemoryLimit)
	case l.groups == nil && c.CPUs > 0:
		return fmt.Errorf("%w: there are no control groups", ErrNoCPULimit)
	}
	return nil
}

// Start starts a command as the leader of a new session, process group and
// tree. It returns once the program is executing. An error of the kernel is
// a [syscall.Errno], perhaps wrapped.
func (l *Launcher) Start(c Command) (*Tree, error) {
	if err := l.checkLimits(&c); err != nil {
		return nil, err
	}
	l.forking <- struct{}{}
	defer func() { <-l.forking }()
	if err := failpoint.Inject("launch.fork"); err != nil {
		return nil, err
	}
	t := &Tree{l: l, pidfd: -1, own: true, kill: c.Kill, signal: c.Signal}
	attr := &syscall.ProcAttr{Dir: c.Dir, Env: c.Env, Files: c.Files, Sys: &syscall.SysProcAttr{
		Setsid:  true,
		Setctty: c.TTY,
		PidFD:   &t.pidfd,
	}}
	var err error
	if l.groups != nil {
		if t.slot, err = l.groups.acquire(&c); err != nil {
			return nil, fmt.Errorf("acquire control group: %w", err)
		}
		if t.pid, err = l.groups.start(t.slot, &c, attr); err != nil && t.pid == 0 {
			l.groups.release(t.slot)
			return nil, err
		}
	} else {
		mark := l.owner + "." + strconv.FormatUint(l.starts.Add(1), 10)
		attr.Env = marked(c.Env, mark)
		fork := c.Fork
		if fork == nil {
			fork = syscall.ForkExec
		}
		if t.pid, err = fork(c.Path, c.Argv, attr); err != nil {
			return nil, err
		}
		t.search = l.walk.add(t.pid, mark)
	}
	t.floor = peakMemory()
	if err == nil {
		err = failpoint.Inject("launch.forked")
	}
	if err == nil && t.pidfd < 0 {
		err = errors.New("the kernel gave no pidfd")
	}
	if err != nil { // started, but without a pidfd
		_ = t.Kill()
		_, _ = t.Reap()
		t.Release()
		return nil, err
	}
	return t, nil
}

// Close kills every process of any tree and removes the control groups when the
// last user of the launcher closes it.
func (l *Launcher) Close() error {
	shared.mu.Lock()
	l.users--
	last := l.users == 0
	if last {
		delete(shared.byOwner, l.owner)
	}
	shared.mu.Unlock()
	if !last {
		return nil
	}
	if l.ignored != nil {
		signal.Stop(l.ignored)
	}
	if l.groups != nil {
		return errors.Join(l.groups.close(), sweepV1(l.owner))
	}
	l.walk.mu.Lock()
	left := make([]*treeSearch, 0, len(l.walk.all))
	for g := range l.walk.all {
		left = append(left, g)
	}
	l.walk.mu.Unlock()
	var errs []error
	for _, g := range left {
		errs = append(errs, l.walk.kill(g))
	}
	return errors.Join(errs...)
}

// SweepOwner kills every process that a dead owner left behind and removes its
// control groups. The owner must not be alive.
func SweepOwner(owner string) (killed int, err error) {
	if err := checkOwner(owner); err != nil {
		return 0, err
	}
	var errs []error
	r, err := findRoots()
	if err != nil {
		errs = append(errs, err)
	}
	var tree, pids string
	if r.v2 != "" {
		tree = filepath.Join(r.v2, baseName, owner)
	}
	if r.pids != "" {
		pids = filepath.Join(r.pids, baseName, owner)
	}
	killed, err = sweepGroups(tree, pids)
	errs = append(errs, err)
	n, err := sweepMarked(owner)
	return killed + n, errors.Join(append(errs, err, sweepV1(owner))...)
}

// sweepMarked kills the processes with the owner's mark, repeatedly, because
// they may be forking, until all have ended.
func sweepMarked(owner string) (killed int, err error) {
	self := os.Getpid()
	found := make(map[int]uint64) // start times by pid
	for deadline := time.Now().Add(sweepTime); ; time.Sleep(time.Millisecond) {
		table, err := procs()
		if err != nil {
			return len(found), fmt.Errorf("read /proc: %w", err)
		}
		live := 0
		for pid, p := range table {
			if pid == self || p.dead() || !strings.HasPrefix(markOf(pid), owner+".") {
				continue
			}
			if signalProc(p, unix.SIGKILL) {
				found[pid] = p.start
				live++
			}
		}
		if live == 0 {
			return len(found), nil
		}
		if time.Now().After(deadline) {
			return len(found), fmt.Errorf("sweep owner %s: %d processes are left", owner, live)
		}
	}
}
