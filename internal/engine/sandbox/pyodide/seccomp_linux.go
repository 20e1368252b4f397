//go:build amd64 || arm64

package pyodide

import (
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/seccomp"
)

// outerFilter is the filter under which Node starts. Starting Node needs threads and
// one exec, and forking needs one plain clone.
func outerFilter() seccomp.Program { return isolate.CellFilter(forkFlags) }

// innerFilter is the filter under which a forked interpreter executes scripts:
// what it takes to compute, to allocate, to tell the time, to use its
// connection, and to look at files, of which it has only those of the
// distribution. Memory must not be moved or made longer where it is: it is that
// of a file, in which something else follows. The allocator then copies.
func innerFilter() seccomp.Program {
	f := seccomp.New()
	isolate.OnFcntl(f)
	f.On(seccomp.Allow, allowed...)
	return f.Program(seccomp.Errno(unix.EPERM))
}

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
