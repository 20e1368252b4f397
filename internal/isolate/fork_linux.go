//go:build amd64 || arm64

package isolate

import (
	"errors"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/forkexec"
	"github.com/spool-run/spool/internal/seccomp"
)

// The standard library starts programs with clone(CLONE_VM|CLONE_VFORK), except
// in a new user namespace: then it copies the page tables of this process, which
// takes as long as the process is large. It also cannot enter namespaces. So this
// file has a start of its own, by the same rules: from the clone until the exec a
// child shares the memory of this process, runs on the stack of the caller, and
// makes only raw system calls.

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:linkname runtimeAfterForkInChild syscall.runtime_AfterForkInChild
func runtimeAfterForkInChild()

// cloneArgs are the arguments of clone3.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// step is what a child was doing when it failed.
type step uintptr

// The steps of a child.
const (
	stepClone step = iota
	stepSetns
	stepUser
	stepSession
	stepTerminal
	stepDir
	stepFiles
	stepLimits
	stepCaps
	stepPrivs
	stepParent
	stepLandlock
	stepFilter
	stepExec
)

var stepText = [...]string{"clone", "setns", "setresuid", "setsid", "ioctl(TIOCSCTTY)", "chdir", "dup3", "setrlimit", "capset", "prctl(PR_SET_NO_NEW_PRIVS)", "prctl(PR_SET_PDEATHSIG)", "landlock_restrict_self", "seccomp", "execve"}

// A StepError is the step before the exec that failed.
type StepError struct {
	Step string
	Err  syscall.Errno
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }

// Unwrap returns the errno.
func (e *StepError) Unwrap() error { return e.Err }

// child is everything that a child needs between clone and exec. Nothing in it
// may move or be collected meanwhile.
type child struct {
	clone cloneArgs

	// Of a process in the namespaces of another.
	join      uintptr // pidfd of that process; -1 for none
	joinFlags uintptr
	between   bool       // the first process only enters, and clones the one that executes the program
	key       [2]uintptr // opens the filter that it inherits
	setUser   bool       // become the user 0 of the namespaces
	nosuid    bool       // no file that it can execute gives capabilities
	owner     bool       // it begins with the capabilities of the namespaces' owner

	// Of a process that makes namespaces.
	ambient bool // keep all capabilities over the exec

	setsid, setctty bool
	parent          uintptr // it is killed when the thread of this process ends that starts it; zero for no such end
	dir             *byte
	files           []uintptr // become 0, 1, 2 …
	moved           []uintptr // where files are meanwhile
	firstFree       uintptr   // above all descriptors in files
	nofile          *unix.Rlimit
	nproc           *unix.Rlimit
	dropCaps        bool
	ruleset         uintptr // of Landlock; -1 for none
	filter          *unix.SockFprog
	inherits        bool // it has a filter already

	path       *byte
	argv, envv **byte

	// The result. The child writes it.
	pid    uintptr
	failed step
	errno  uintptr
}

// capHead is the argument of capset.
var capHead = unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}

// start clones and returns the process that executes the program, which is a
// child of this process.
func (c *child) start() (pid int, err error) {
	c.moved = make([]uintptr, len(c.files))
	c.firstFree = uintptr(len(c.files))
	for _, fd := range c.files {
		c.firstFree = max(c.firstFree, fd+1)
	}
	c.clone.exitSignal = uint64(unix.SIGCHLD)
	c.clone.flags |= unix.CLONE_VM | unix.CLONE_VFORK
	syscall.ForkLock.Lock()
	runtime.LockOSThread()
	leave := c.enterPIDs()
	first, errno := c.fork()
	runtimeAfterFork()
	left := leave()
	if left == nil { // otherwise the thread ends with this goroutine
		runtime.UnlockOSThread()
	}
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(c)
	// A change of credentials in the child makes the memory that it shares
	// with this process undumpable.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	if errno != 0 {
		return 0, &StepError{stepText[stepClone], syscall.Errno(errno)}
	}
	if c.between { // the first process has ended, and another executes the program
		reap(int(first))
		if c.pid == 0 && c.errno == 0 {
			return 0, errors.New("the process that enters the sandbox was killed")
		}
	} else {
		c.pid = first
	}
	if c.errno != 0 {
		if c.pid != 0 {
			reap(int(c.pid))
		}
		if c.failed == stepExec {
			return 0, syscall.Errno(c.errno)
		}
		return 0, &StepError{stepText[c.failed], syscall.Errno(c.errno)}
	}
	if left != nil {
		_ = unix.Kill(int(c.pid), unix.SIGKILL)
		reap(int(c.pid))
		return 0, left
	}
	return int(c.pid), nil
}

// ownPIDs is a descriptor of the PID namespace of this process.
var ownPIDs = sync.OnceValues(func() (int, error) {
	return unix.Open("/proc/self/ns/pid", unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// enterPIDs has the children of this thread begin in the PID namespace that the child
// is to join, until the caller calls leave. A process cannot enter one itself, only its
// children do. Without the right to do so, the child has to clone another one.
func (c *child) enterPIDs() (leave func() error) {
	stay := func() error { return nil }
	if c.join == none || c.between || c.joinFlags&unix.CLONE_NEWPID == 0 {
		return stay
	}
	own, err := ownPIDs()
	if err == nil {
		err = unix.Setns(int(c.join), unix.CLONE_NEWPID)
	}
	if err != nil {
		c.between = true
		return stay
	}
	c.joinFlags &^= unix.CLONE_NEWPID
	return func() error { return try(unix.Setns(own, unix.CLONE_NEWPID), "setns") }
}

const none = ^uintptr(0)

func reap(pid int) {
	for {
		if _, err := unix.Wait4(pid, nil, 0, nil); err != unix.EINTR {
			return
		}
	}
}

// fork clones. In the parent it returns at once after the child has executed or
// ended; the child does not return.
//
//go:noinline
//go:norace
//go:nocheckptr
func (c *child) fork() (pid, errno uintptr) {
	runtimeBeforeFork()
	if c.clone.flags&unix.CLONE_INTO_CGROUP != 0 {
		pid, errno = forkexec.Raw(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.clone)), unsafe.Sizeof(c.clone), c.key[0], c.key[1])
	} else { // containers often refuse clone3
		pid, errno = forkexec.Raw(unix.SYS_CLONE, uintptr(c.clone.flags|c.clone.exitSignal), 0, 0, 0)
	}
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	c.run()
	return 0, 0 // never
}

// run is the first process.
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) run() {
	if c.join != none {
		if _, _, e := syscall.RawSyscall6(unix.SYS_SETNS, c.join, c.joinFlags, 0, 0, c.key[0], c.key[1]); e != 0 {
			c.failed, c.errno = stepSetns, uintptr(e)
			exit(1)
		}
	}
	if c.between {
		c.second()
		exit(0)
	}
	c.execute()
	exit(1)
}

// second clones the process that executes the program: a sibling, so that the process
// which wants to wait for it is its parent.
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) second() {
	pid, errno := forkexec.Raw(unix.SYS_CLONE, unix.CLONE_VM|unix.CLONE_VFORK|unix.CLONE_PARENT|uintptr(unix.SIGCHLD), 0, 0, 0)
	if errno != 0 {
		c.failed, c.errno = stepClone, errno
		return
	}
	if pid != 0 {
		c.pid = pid
		return
	}
	c.execute()
	exit(1)
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// execute makes the process what it is to be and executes the program. It
// returns if a step fails.
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) execute() {
	runtimeAfterForkInChild()
	if c.setUser {
		c.failed = stepUser
		if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESGID, 0, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
		if _, _, e := syscall.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return
		}
	}
	if c.setsid {
		if _, _, e := syscall.RawSyscall(unix.SYS_SETSID, 0, 0, 0); e != 0 {
			c.failed, c.errno = stepSession, uintptr(e)
			return
		}
	}
	if c.dir != nil {
		if _, _, e := syscall.RawSyscall(unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0); e != 0 {
			c.failed, c.errno = stepDir, uintptr(e)
			return
		}
	}
	if !c.arrange() {
		return
	}
	if c.setctty {
		if _, _, e := syscall.RawSyscall(unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 0); e != 0 {
			c.failed, c.errno = stepTerminal, uintptr(e)
			return
		}
	}
	c.failed = stepLimits
	if !c.limit(unix.RLIMIT_NOFILE, c.nofile) || !c.limit(unix.RLIMIT_NPROC, c.nproc) {
		return
	}
	if c.ambient && !c.keepCaps() {
		return
	}
	if c.dropCaps && !c.drop() {
		return
	}
	if c.parent != 0 && !c.follow() {
		return
	}
	if c.ruleset != none {
		if _, _, e := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, c.ruleset, 0, 0); e != 0 {
			c.failed, c.errno = stepLandlock, uintptr(e)
			return
		}
	}
	if c.filter != nil {
		if _, _, e := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(c.filter))); e != 0 {
			c.failed, c.errno = stepFilter, uintptr(e)
			return
		}
	}
	if c.inherits { // without the key the call is refused before the kernel looks at the descriptor
		if _, _, e := syscall.RawSyscall6(unix.SYS_SETNS, none, 0, 0, 0, 0, 0); e != unix.EPERM {
			c.failed, c.errno = stepFilter, uintptr(unix.EACCES)
			return
		}
	}
	_, _, e := syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.path)), uintptr(unsafe.Pointer(c.argv)), uintptr(unsafe.Pointer(c.envv)))
	c.failed, c.errno = stepExec, uintptr(e)
}

// arrange puts the descriptors in their places: first all of them above every
// place, so that none is overwritten.
//
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) arrange() bool {
	c.failed = stepFiles
	for i := range c.files {
		fd, _, e := syscall.RawSyscall(unix.SYS_FCNTL, c.files[i], unix.F_DUPFD_CLOEXEC, c.firstFree)
		if e != 0 {
			c.errno = uintptr(e)
			return false
		}
		c.moved[i] = fd
	}
	// The descriptors that are used later must not be in a place.
	if c.ruleset != none && c.ruleset < c.firstFree {
		fd, _, e := syscall.RawSyscall(unix.SYS_FCNTL, c.ruleset, unix.F_DUPFD_CLOEXEC, c.firstFree)
		if e != 0 {
			c.errno = uintptr(e)
			return false
		}
		c.ruleset = fd
	}
	for i := range c.moved {
		if _, _, e := syscall.RawSyscall(unix.SYS_DUP3, c.moved[i], uintptr(i), 0); e != 0 {
			c.errno = uintptr(e)
			return false
		}
	}
	return true
}

//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) limit(resource uintptr, l *unix.Rlimit) bool {
	if l == nil {
		return true
	}
	_, _, e := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, resource, uintptr(unsafe.Pointer(l)), 0, 0, 0)
	c.errno = uintptr(e)
	return e == 0
}

// allCaps, noNewCaps and noCaps are arguments of capset: everything, also over an exec,
// nothing over an exec, and nothing.
var (
	allCaps   [2]unix.CapUserData
	noNewCaps [2]unix.CapUserData
	noCaps    [2]unix.CapUserData
	lastCap   uintptr // the highest capability of this kernel
)

func init() {
	for lastCap = 63; lastCap > 0; lastCap-- {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, lastCap, 0, 0, 0); err == nil {
			break
		}
	}
	for i, set := range []*[2]unix.CapUserData{&allCaps, &noNewCaps} {
		low, high := ^uint32(0), uint32(1<<(lastCap-31)-1)
		set[0].Effective, set[0].Permitted, set[1].Effective, set[1].Permitted = low, low, high, high
		if i == 0 {
			set[0].Inheritable, set[1].Inheritable = low, high
		}
	}
}

// keepCaps keeps the capabilities in the new user namespace over the exec.
//
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) keepCaps() bool {
	c.failed = stepCaps
	if _, _, e := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHead)), uintptr(unsafe.Pointer(&allCaps)), 0); e != 0 {
		c.errno = uintptr(e)
		return false
	}
	for i := uintptr(0); i <= lastCap; i++ {
		if _, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, i, 0, 0, 0); e != 0 {
			c.errno = uintptr(e)
			return false
		}
	}
	return true
}

// follow has the process end with the thread that started it, and fails if that has
// ended already.
//
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) follow() bool {
	c.failed = stepParent
	if _, _, e := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0); e != 0 {
		c.errno = uintptr(e)
		return false
	}
	if pid, _, _ := syscall.RawSyscall(unix.SYS_GETPPID, 0, 0, 0); pid != c.parent {
		c.errno = uintptr(unix.ESRCH)
		return false
	}
	return true
}

// neverRoot are the secure bits of a program to which its user 0 gives no
// capabilities, and which can add no ambient ones. All four bits are locked.
const (
	secbitNoRoot    = 1 << 0
	secbitNoAmbient = 1 << 6
	secbitsLocked   = 1<<1 | 1<<3 | 1<<5 | 1<<7
	neverRoot       = secbitNoRoot | secbitNoAmbient | secbitsLocked
)

// drop lets the program have no capabilities and gain none. This process keeps its
// own until the exec, so that no process of the sandbox can trace it while it
// shares the memory of this one.
//
// An exec gives capabilities to the user 0, by the file, and those that are inheritable
// or ambient, and with no_new_privs none that the process did not have before. The
// secure bits end the first way with one call, where the bounding set, which ends the
// second, too, takes one for each capability.
//
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) drop() bool {
	c.failed = stepCaps
	if c.nosuid {
		if _, _, e := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, neverRoot, 0); e != 0 {
			c.errno = uintptr(e)
			return false
		}
	}
	for i := uintptr(0); i <= lastCap && !c.nosuid; i++ {
		_, _, e := syscall.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, i, 0)
		if e != 0 && c.owner {
			c.errno = uintptr(e)
			return false
		}
	}
	if c.owner {
		if _, _, e := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHead)), uintptr(unsafe.Pointer(&noNewCaps)), 0); e != 0 {
			c.errno = uintptr(e)
			return false
		}
	}
	if !c.owner {
		if _, _, e := syscall.RawSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&capHead)), uintptr(unsafe.Pointer(&noCaps)), 0); e != 0 {
			c.errno = uintptr(e)
			return false
		}
	}
	if _, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0); e != 0 {
		c.errno = uintptr(e)
		return false
	}
	c.failed = stepPrivs
	_, _, e := syscall.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)
	c.errno = uintptr(e)
	return e == 0
}

// program returns a filter as the kernel takes it.
func program(p seccomp.Program) *unix.SockFprog {
	return &unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
}
