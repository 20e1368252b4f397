package wasipy

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// needed are the system calls that a worker makes once it is set up: those of
// Go's runtime, and reads and writes on its open descriptors. A worker opens
// nothing, starts nothing and connects to nothing.
var needed = append([]uint32{
	unix.SYS_READ, unix.SYS_PREAD64, unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_CLOSE, unix.SYS_FSTAT,
	unix.SYS_RECVMSG, unix.SYS_SHUTDOWN, unix.SYS_PPOLL,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_BRK, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}, neededHere...)

// filter returns the filter of the system calls of this process, a worker.
func filter() seccomp.Program {
	deny := seccomp.Errno(unix.EPERM)
	f := seccomp.New()
	// No memory becomes code any more.
	for _, call := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		f.OnArg(call, 2, seccomp.Allow, seccomp.AnyBit(unix.PROT_EXEC, deny))
	}
	// Threads, not processes. The flags of clone3 are in memory, where a filter
	// cannot look; without clone3 the runtime calls clone.
	f.OnArg(unix.SYS_CLONE, 0, deny, seccomp.AnyBit(unix.CLONE_THREAD, seccomp.Allow))
	f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3)
	// Signals to itself, with which the runtime preempts its threads, and none
	// to others: neither directly nor by making them the owner of a descriptor.
	f.OnArg(unix.SYS_TGKILL, 0, deny, seccomp.Equal(uint32(os.Getpid()), seccomp.Allow))
	f.OnArg(unix.SYS_FCNTL, 1, deny,
		seccomp.Equal(unix.F_GETFD, seccomp.Allow), seccomp.Equal(unix.F_SETFD, seccomp.Allow),
		seccomp.Equal(unix.F_GETFL, seccomp.Allow), seccomp.Equal(unix.F_SETFL, seccomp.Allow),
		seccomp.Equal(unix.F_DUPFD_CLOEXEC, seccomp.Allow))
	f.On(seccomp.Allow, needed...)
	return f.Program(deny)
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
	runtime.LockOSThread() // which has no_new_privs; the filter gives it to the other threads
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	if _, missing := confinement(); len(missing) > 0 {
		return nil // the parent knows, and said so
	}
	return filter().InstallAll()
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

// confinement says which protections this kernel offers besides a process of
// its own, and which it lacks.
func confinement() (protections, missing []string) {
	if !seccomp.Supported() {
		return []string{"no_new_privs"}, []string{"seccomp filters"}
	}
	return []string{
		"no_new_privs",
		"seccomp: a worker can neither open files, nor connect, nor start processes, nor make memory executable",
	}, nil
}
