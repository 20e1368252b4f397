package wasipy

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// needed are the system calls that a worker makes once it is set up: those of
// Go's runtime, and reads and writes on what it has open. It opens nothing,
// starts nothing, connects to nothing.
var needed = append([]uint32{
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_FCNTL,
	unix.SYS_RECVMSG, unix.SYS_SHUTDOWN, unix.SYS_PPOLL,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_TGKILL, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}, neededHere...)

// Parts of the data that a filter looks at.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

const (
	seccompSetFilter  = 1
	seccompActionTest = 2
	seccompAllThreads = 1
	actionAllow       = 0x7fff0000
	actionErrno       = 0x00050000
	actionKill        = 0x80000000
)

// filter is the program that the kernel runs at each system call.
func filter() []unix.SockFilter {
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	give := func(what uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what}
	}
	equal := func(k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jt: yes, Jf: no}
	}
	anyOf := func(bits uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: bits, Jt: yes, Jf: no}
	}
	deny := give(actionErrno | uint32(unix.EPERM))
	p := []unix.SockFilter{
		load(dataArch), equal(auditArch, 1, 0), give(actionKill),
		load(dataNumber),
		// No memory becomes code any more.
		equal(unix.SYS_MMAP, 1, 0), equal(unix.SYS_MPROTECT, 0, 4),
		load(dataArgs + 2*8), anyOf(unix.PROT_EXEC, 0, 1), deny, give(actionAllow),
		// Threads, not processes. Where the flags cannot be looked at, the
		// runtime takes the call where they can.
		equal(unix.SYS_CLONE, 0, 4),
		load(dataArgs), anyOf(unix.CLONE_THREAD, 1, 0), deny, give(actionAllow),
		equal(unix.SYS_CLONE3, 0, 1), give(actionErrno | uint32(unix.ENOSYS)),
	}
	for _, n := range needed {
		p = append(p, equal(n, 0, 1), give(actionAllow))
	}
	return append(p, deny)
}

// confine gives up what a worker does not need. It cannot be undone.
func confine() error {
	for _, l := range []struct {
		what  int
		limit uint64
	}{{unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, 0}, {unix.RLIMIT_MEMLOCK, 0}} {
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: l.limit, Max: l.limit}); err != nil {
			return fmt.Errorf("set a resource limit: %w", err)
		}
	}
	// The runtime's poller opens its descriptors when it is first used.
	if err := startPoller(); err != nil {
		return err
	}
	runtime.LockOSThread() // the call below is for all threads
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if _, missing := confinement(); len(missing) > 0 {
		return nil // the parent knows, and said so
	}
	p := filter()
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	r, _, e := unix.RawSyscall(unix.SYS_SECCOMP, seccompSetFilter, seccompAllThreads, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 || r != 0 {
		return fmt.Errorf("filter system calls: %w", errors.Join(e))
	}
	return nil
}

func startPoller() error {
	a, b, err := pair()
	if err != nil {
		return err
	}
	unix.Close(b)
	l, err := newLane(a, nil, false)
	if err != nil {
		return err
	}
	l.close()
	return nil
}

// confinement says which walls this kernel has to offer besides a process, and
// which it lacks.
func confinement() (walls, missing []string) {
	action := uint32(actionErrno)
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, seccompActionTest, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return []string{"no_new_privs"}, []string{"seccomp filters"}
	}
	return []string{
		"no_new_privs",
		"seccomp: a worker can neither open files, nor connect, nor start processes, nor make memory executable",
	}, nil
}
