//go:build amd64 || arm64

package forkexec

import (
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneArgs are the arguments of clone3.
type cloneArgs struct {
	flags, pidFD, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// cloneClearSighand is CLONE_CLEAR_SIGHAND: signals that this process handles have their
// default action in the child, so that no handler ever runs there.
const cloneClearSighand = 1 << 32

// cloneFlags have the child share the table of descriptors, too, until it has made a copy of
// the part that it needs.
const cloneFlags = unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_FILES | unix.CLONE_PIDFD | cloneClearSighand

// step is what a child does.
type step uintptr

// The steps of a child.
const (
	stepClone step = iota
	stepSession
	stepGroups
	stepDir
	stepFiles
	stepTerminal
	stepExec
)

var stepText = [...]string{"clone", "setsid", "enter control group", "chdir", "copy descriptors", "ioctl(TIOCSCTTY)", "execve"}

// child is what a child needs between the clone and the exec.
type child struct {
	clone cloneArgs
	pidfd int32 // the kernel writes it

	enter  []int
	dir    *byte // nil for that of this process
	seats  *seats
	files  int // the number of seats that are taken
	tty    bool
	nofile *unix.Rlimit
	limit  unix.Rlimit // the present limit, which the child reads

	path       *byte
	argv, envv **byte

	// The step that failed, and its error. The child writes them.
	step  step
	errno uintptr
}

// children are kept, so that each is on the heap: one on a stack might move between the
// moment in which its address becomes a number and the system call.
var children = sync.Pool{New: func() any { return new(child) }}

// setProgram sets what the child executes.
func (c *child) setProgram(p *Program) (err error) {
	if c.path, err = syscall.BytePtrFromString(p.Path); err != nil {
		return err
	}
	if p.Dir != "" {
		if c.dir, err = syscall.BytePtrFromString(p.Dir); err != nil {
			return err
		}
	}
	argv, err := syscall.SlicePtrFromStrings(p.Argv)
	if err != nil {
		return err
	}
	envv, err := syscall.SlicePtrFromStrings(p.Env)
	if err != nil {
		return err
	}
	c.argv, c.envv = &argv[0], &envv[0]
	return nil
}

// fork clones. In the parent it returns once the child has executed the program or ended;
// the child does not return.
//
//go:noinline
//go:norace
//go:nocheckptr
func (c *child) fork() (pid, errno uintptr) {
	c.clone.pidFD = uint64(uintptr(unsafe.Pointer(&c.pidfd)))
	pid, errno = Raw(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&c.clone)), unsafe.Sizeof(c.clone), 0, 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	c.execute()
	for {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}

// zero is what a process writes to a control group to enter it.
var zero = [1]byte{'0'}

// execute makes the process what it is to be and executes the program. It returns if a step
// fails.
//
//go:noinline
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) execute() {
	if !c.try(stepSession, unix.SYS_SETSID, 0, 0, 0) {
		return
	}
	for i := range c.enter {
		if !c.try(stepGroups, unix.SYS_WRITE, uintptr(c.enter[i]), uintptr(unsafe.Pointer(&zero)), 1) {
			return
		}
	}
	if c.dir != nil && !c.try(stepDir, unix.SYS_CHDIR, uintptr(unsafe.Pointer(c.dir)), 0, 0) {
		return
	}
	// From here on the table of descriptors is the child's own.
	if !c.try(stepFiles, unix.SYS_CLOSE_RANGE, uintptr(c.seats.last+1), 1<<32-1, unix.CLOSE_RANGE_UNSHARE) {
		return
	}
	for i := 0; i < c.files; i++ {
		if !c.try(stepFiles, unix.SYS_DUP3, uintptr(c.seats.fds[i]), uintptr(i), 0) {
			return
		}
	}
	for i := c.files; i < 3; i++ {
		_, _, _ = syscall.RawSyscall(unix.SYS_CLOSE, uintptr(i), 0, 0) // or it was not open
	}
	if c.tty && !c.try(stepTerminal, unix.SYS_IOCTL, 0, unix.TIOCSCTTY, 1) {
		return
	}
	// A limit that was set since the runtime raised it stays as it is.
	_, _, e := syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, 0, uintptr(unsafe.Pointer(&c.limit)), 0, 0)
	if e == 0 && c.limit.Max == c.nofile.Max && c.limit.Cur == c.nofile.Max-1 {
		_, _, _ = syscall.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(c.nofile)), 0, 0, 0)
	}
	c.try(stepExec, unix.SYS_EXECVE, uintptr(unsafe.Pointer(c.path)), uintptr(unsafe.Pointer(c.argv)), uintptr(unsafe.Pointer(c.envv)))
}

// try makes a system call, and notes the step if it fails.
//
//go:norace
//go:nocheckptr
//go:nosplit
func (c *child) try(s step, trap, a1, a2, a3 uintptr) bool {
	_, _, e := syscall.RawSyscall(trap, a1, a2, a3)
	if e != 0 {
		c.step, c.errno = s, uintptr(e)
	}
	return e == 0
}
