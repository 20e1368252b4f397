//go:build amd64 || arm64

package pyodide

import (
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// outerFilter is the filter under which Node starts. It refuses sockets, signals
// to other processes, and the calls that make or change protections. Starting
// Node needs threads and one exec, and forking needs one plain clone; a new
// process takes flags that are none of these.
func outerFilter() seccomp.Program {
	deny := seccomp.Errno(unix.EPERM)
	f := seccomp.New()
	// clone: threads, the fork that the tracer makes, and how Go starts
	// a program.
	f.OnArg(unix.SYS_CLONE, 0, deny,
		seccomp.AnyBit(namespaces|unix.CLONE_NEWCGROUP, deny),
		seccomp.AnyBit(unix.CLONE_THREAD, seccomp.Allow),
		seccomp.Equal(forkFlags, seccomp.Allow),
		seccomp.Equal(unix.CLONE_VFORK|unix.CLONE_VM|uint32(unix.SIGCHLD), seccomp.Allow),
		seccomp.Equal(unix.CLONE_VFORK|unix.CLONE_VM|unix.CLONE_PIDFD|uint32(unix.SIGCHLD), seccomp.Allow))
	f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3) // its flags are in memory; clone does as well
	onFcntl(f)
	// The owner of a descriptor gets signals about it.
	f.OnArg(unix.SYS_IOCTL, 1, seccomp.Allow, seccomp.Equal(fioSetOwn, deny), seccomp.Equal(siocSPGrp, deny))
	f.On(deny, forbidden...)
	return f.Program(seccomp.Allow)
}

// innerFilter is the filter under which a forked interpreter executes scripts:
// what it takes to compute, to allocate, to tell the time, to use its
// connection, and to look at files, of which it has only those of the
// distribution. Memory must not be moved or made longer where it is: it is that
// of a file, in which something else follows. The allocator then copies.
func innerFilter() seccomp.Program {
	f := seccomp.New()
	onFcntl(f)
	f.On(seccomp.Allow, allowed...)
	return f.Program(seccomp.Errno(unix.EPERM))
}

// onFcntl allows what fcntl does to descriptors and their flags. Its other
// commands can make the kernel send signals to other processes.
func onFcntl(f *seccomp.Filter) {
	f.OnArg(unix.SYS_FCNTL, 1, seccomp.Errno(unix.EPERM),
		seccomp.Equal(unix.F_DUPFD, seccomp.Allow), seccomp.Equal(unix.F_DUPFD_CLOEXEC, seccomp.Allow),
		seccomp.Equal(unix.F_GETFD, seccomp.Allow), seccomp.Equal(unix.F_SETFD, seccomp.Allow),
		seccomp.Equal(unix.F_GETFL, seccomp.Allow), seccomp.Equal(unix.F_SETFL, seccomp.Allow))
}

// The requests of ioctl that set the owner of a descriptor.
const (
	fioSetOwn = 0x8901
	siocSPGrp = 0x8902
)

// forbidden are the calls that nothing in a sandbox needs, on any
// architecture; see forbiddenHere for others.
var forbidden = append([]uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMCTL, unix.SYS_SEMTIMEDOP, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	unix.SYS_EXECVEAT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT,
	unix.SYS_SYSLOG, unix.SYS_ACCT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_PERSONALITY,
	unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ADJTIMEX, unix.SYS_CLOCK_ADJTIME,
	unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
}, forbiddenHere...)

// allowed are the calls of a forked interpreter.
var allowed = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_CLOSE, unix.SYS_LSEEK,
	unix.SYS_OPENAT, unix.SYS_STATX, unix.SYS_FSTAT, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_GETDENTS64, unix.SYS_GETCWD,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_BRK,
	unix.SYS_PKEY_ALLOC, unix.SYS_PKEY_FREE, unix.SYS_PKEY_MPROTECT, unix.SYS_MEMBARRIER,
	unix.SYS_FUTEX, unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_NANOSLEEP,
	unix.SYS_GETRANDOM, unix.SYS_SCHED_YIELD, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID,
	unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETRUSAGE, unix.SYS_SYSINFO, unix.SYS_UNAME, unix.SYS_SCHED_GETAFFINITY,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL, unix.SYS_PPOLL, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}, allowedHere...)
