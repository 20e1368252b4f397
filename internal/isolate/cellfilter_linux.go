//go:build amd64 || arm64

package isolate

import (
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// CellFilter returns the filter of a program of a cell that is not Spool's own. Beyond
// what no run has, it refuses sockets, signals to other processes, memory and messages
// that processes share, and new processes but by a clone with exactly one of the flags.
// Threads are allowed.
func CellFilter(clones ...uint32) seccomp.Program {
	deny := seccomp.Errno(unix.EPERM)
	f := seccomp.New()
	tests := []seccomp.Test{seccomp.AnyBit(newNamespaces, deny), seccomp.AnyBit(unix.CLONE_THREAD, seccomp.Allow)}
	for _, flags := range clones {
		tests = append(tests, seccomp.Equal(flags, seccomp.Allow))
	}
	f.OnArg(unix.SYS_CLONE, 0, deny, tests...)
	f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3) // its flags are in memory; clone does as well
	OnFcntl(f)
	// The owner of a descriptor gets signals about it.
	f.OnArg(unix.SYS_IOCTL, 1, seccomp.Allow, seccomp.Equal(fioSetOwn, deny), seccomp.Equal(siocSPGrp, deny), seccomp.Equal(unix.TIOCSTI, deny), seccomp.Equal(unix.TIOCLINUX, deny))
	f.On(deny, refused...)
	f.On(deny, cellRefused...)
	return f.Program(seccomp.Allow)
}

// OnFcntl has a filter allow what fcntl does to descriptors and their flags. Its other
// commands can make the kernel send signals to other processes.
func OnFcntl(f *seccomp.Filter) {
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

// cellRefused are the system calls that a run may have and no process of a cell needs.
var cellRefused = append([]uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4,
	unix.SYS_KILL, unix.SYS_TKILL, unix.SYS_TGKILL, unix.SYS_RT_SIGQUEUEINFO, unix.SYS_RT_TGSIGQUEUEINFO,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_SHMGET, unix.SYS_SHMAT, unix.SYS_SHMCTL, unix.SYS_MSGGET, unix.SYS_MSGSND, unix.SYS_MSGRCV, unix.SYS_MSGCTL,
	unix.SYS_SEMGET, unix.SYS_SEMOP, unix.SYS_SEMCTL, unix.SYS_SEMTIMEDOP, unix.SYS_MQ_OPEN, unix.SYS_MQ_UNLINK,
	unix.SYS_EXECVEAT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_PERSONALITY,
	unix.SYS_SETPRIORITY, unix.SYS_SCHED_SETSCHEDULER, unix.SYS_SCHED_SETATTR, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY,
	unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES,
}, cellRefusedHere...)
