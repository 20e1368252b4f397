//go:build amd64 || arm64

package isolate

import (
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// network is how much of the network a run has.
type network int

const (
	hostNetwork  network = iota // that of the machine
	ownNetwork                  // a loopback interface of its own
	emptyNetwork                // no sockets but pairs
)

// newNamespaces are the flags of clone that make namespaces.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME

// newFilter returns the filter of a run: it refuses what reaches other processes,
// the kernel's rarely used parts, new namespaces, and sockets of families that
// the run is not to have. A process that comes with the key may still be put into a
// control group and into namespaces.
func newFilter(n network, key *seccomp.Key) seccomp.Program {
	deny := seccomp.Errno(unix.EPERM)
	f := seccomp.New()
	families := []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}
	switch n {
	case ownNetwork: // a socket file of the machine would be a way out
		families = []uint32{unix.AF_INET, unix.AF_INET6}
	case emptyNetwork:
		families = nil
	}
	var allow []seccomp.Test
	for _, family := range families {
		allow = append(allow, seccomp.Equal(family, seccomp.Allow))
	}
	if key != nil { // before the rules that refuse the calls to all
		f.OnKey(key, deny, unix.SYS_SETNS)
		f.OnKey(key, seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3)
	}
	f.OnArg(unix.SYS_SOCKET, 0, deny, allow...)
	f.OnArg(unix.SYS_SOCKETPAIR, 0, deny, seccomp.Equal(unix.AF_UNIX, seccomp.Allow))
	f.OnArg(unix.SYS_CLONE, 0, seccomp.Allow, seccomp.AnyBit(newNamespaces, deny))
	f.On(seccomp.Errno(unix.ENOSYS), unix.SYS_CLONE3) // its flags cannot be seen; libraries use clone then
	// Typing into a terminal that the run does not own.
	f.OnArg(unix.SYS_IOCTL, 1, seccomp.Allow, seccomp.Equal(unix.TIOCSTI, deny), seccomp.Equal(unix.TIOCLINUX, deny))
	f.On(deny, refused...)
	return f.Program(seccomp.Allow)
}

// refused are the system calls that no run and no process of a cell has.
var refused = []uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_SYSLOG,
}
