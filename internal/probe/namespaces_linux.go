package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// cloneFlags are the flags of clone(2) by the kind of namespaces.
var cloneFlags = map[Namespace]struct {
	flag uintptr
	name string
}{
	User:  {unix.CLONE_NEWUSER, "CLONE_NEWUSER"},
	Mount: {unix.CLONE_NEWNS, "CLONE_NEWNS"},
	PID:   {unix.CLONE_NEWPID, "CLONE_NEWPID"},
	Net:   {unix.CLONE_NEWNET, "CLONE_NEWNET"},
}

// TryNamespace starts a child in a new namespace and has it do what the
// namespace is for: change the host name as root of a user namespace, mount a
// file system that this process does not see, be the first of its processes,
// open a network interface. Root needs no user namespace for the others; any
// other user gets one with it, as isolation would.
func TryNamespace(ctx context.Context, n Namespace) error {
	c, ok := cloneFlags[n]
	if !ok {
		return fmt.Errorf("no namespace %q", n)
	}
	flags, call := c.flag, "clone("+c.name+")"
	if os.Geteuid() != 0 && n != User {
		flags |= unix.CLONE_NEWUSER
		call = "clone(CLONE_NEWUSER|" + c.name + ")"
	}
	dir, err := os.MkdirTemp("", "spool-probe-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := command(ctx, "namespace", string(n), dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	if flags&unix.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	err = ask(cmd, nil)
	var step *Error
	var errno syscall.Errno
	switch {
	case err == nil:
		if _, err := os.Lstat(filepath.Join(dir, mountedFile)); err == nil {
			return &Error{call, errors.New("a mount of the child is seen outside")}
		}
		return nil
	case errors.As(err, &step) || !errors.As(err, &errno):
		return err
	case flags&unix.CLONE_NEWUSER != 0 && startsUnmapped(ctx, flags):
		return &Error{"write /proc/PID/uid_map", errno}
	}
	return &Error{call, errno}
}

// startsUnmapped reports whether a child starts in a new user namespace if no
// users are mapped: then the kernel refuses only the mapping.
func startsUnmapped(ctx context.Context, flags uintptr) bool {
	cmd := command(ctx, "nothing")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
	return ask(cmd, nil) == nil
}

// mountedFile is the name of a file that only the child may see.
const mountedFile = "mounted"

// namespaceTask is done in the new namespace.
func namespaceTask(args []string) (any, error) {
	if len(args) != 2 {
		return nil, errors.New("usage: namespace kind directory")
	}
	switch Namespace(args[0]) {
	case User:
		return nil, useUser()
	case Mount:
		return nil, useMount(args[1])
	case PID:
		return nil, usePID()
	case Net:
		return nil, useNet()
	}
	return nil, errors.New("no such namespace")
}

// useUser does what only root of a user namespace may: some systems let anyone
// make the namespace, and refuse its root all rights.
func useUser() error {
	if uid := os.Geteuid(); uid != 0 {
		return &Error{"geteuid", fmt.Errorf("user %d, want 0", uid)}
	}
	runtime.LockOSThread() // the thread ends with the process
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return failed(err, "unshare(CLONE_NEWUTS)")
	}
	return failed(unix.Sethostname([]byte("spool-probe")), "sethostname")
}

func useMount(dir string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return failed(err, "mount(MS_PRIVATE)")
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return failed(err, "mount(tmpfs)")
	}
	return failed(os.WriteFile(filepath.Join(dir, mountedFile), nil, 0o600), "write to the mount")
}

func usePID() error {
	if pid := os.Getpid(); pid != 1 {
		return &Error{"getpid", fmt.Errorf("process %d, want 1", pid)}
	}
	return nil
}

func useNet() error {
	list, err := net.Interfaces()
	if err != nil {
		return failed(err, "list the network interfaces")
	}
	var others []string
	for _, i := range list {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			others = append(others, i.Name)
		}
	}
	if len(others) > 0 {
		return &Error{"list the network interfaces", fmt.Errorf("%s can be used", strings.Join(others, ", "))}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failed(err, "socket")
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return failed(err, "ioctl(SIOCSIFFLAGS)")
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return failed(err, "listen on the loopback interface")
	}
	return l.Close()
}
