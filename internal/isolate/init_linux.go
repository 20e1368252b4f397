//go:build amd64 || arm64

package isolate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
)

// Role is the first argument of this program when it is the first process of a
// sandbox, or one that tries to leave it: main must then call [Work].
const Role = "isolate-role"

// Work is the main function in the [Role]. It returns the exit code.
func Work(args []string) int {
	switch {
	case len(args) == 1 && args[0] == "init":
		return initMain()
	case len(args) == 2 && args[0] == "attempt":
		return attemptMain(args[1])
	case len(args) == 2 && args[0] == "warden":
		syscall.Exit(wardenMain(args[1])) // not os.Exit, which waits for a second under the race detector
	case len(args) == 2 && args[0] == "guest":
		syscall.Exit(guestMain(args[1]))
	case len(args) == 1 && args[0] == "change":
		return changeMain()
	}
	fmt.Fprintf(os.Stderr, "spool: no isolation role %q\n", args)
	return 2
}

// controlFD is the socket of the process that made the sandbox. When that process
// ends, the socket does, and with it the sandbox.
const controlFD = 3

// maxMessage bounds the messages on that socket.
const maxMessage = 128 << 10

var errMessage = fmt.Errorf("the description has more than %d bytes; name fewer paths", maxMessage)

// layout is what the first process makes of its namespaces.
type layout struct {
	Own      bool     `json:"own"`                // become the user 0 of the namespaces
	Network  bool     `json:"network"`            // the network is its own
	Gate     bool     `json:"gate"`               // it has a listener for a proxy
	Tmp      bool     `json:"tmp"`                // /tmp and /var/tmp are its own
	Mounts   []mount  `json:"mounts"`             // in order: a directory before what is in it
	Trees    int      `json:"trees"`              // descriptors of mounts that come with the message: the root first
	Paths    []string `json:"paths"`              // where the trees are mounted
	Landlock int      `json:"landlock"`           // version; zero for none
	Readable []string `json:"readable,omitempty"` // all that can be read beside what is writable; nil for everything
	Guest    bool     `json:"guest"`              // runs are in gVisor
	View     bool     `json:"view"`               // the tree of the machine, but for one overlay
	Bare     bool     `json:"bare,omitempty"`     // a tree with nothing but the mounts and links
	Links    []link   `json:"links,omitempty"`    // of a bare tree
	Open     bool     `json:"open,omitempty"`     // the tree of the machine is writable

	Hollow bool   `json:"hollow,omitempty"` // a bare tree without /proc, temporary files and any device but null
	Fence  string `json:"fence,omitempty"`  // the mechanism without a tree: Landlock, which hides all but the mounts, or Filter

	gate int      // the listener for a proxy; -1 for none
	proc *os.File // the /proc of a hollow tree
}

// mount is a path that differs from the rest of the tree, which is read-only.
type mount struct {
	Path string `json:"path"`
	To   string `json:"to,omitempty"` // where it is in the tree; empty for its path
	Kind string `json:"kind"`
	Tree int    `json:"tree,omitempty"` // number of its descriptor from 1 on; zero to open it by its path
	Dir  string `json:"dir,omitempty"`  // of an overlay
	Work int    `json:"work,omitempty"` // number of the descriptor of Dir, as Tree
}

// The kinds of mounts.
const (
	mountWritable = "writable"
	mountReadable = "readable" // read-only, where a private directory would hide it
	mountHidden   = "hidden"
	mountOverlay  = "overlay" // writable; changes go to a directory elsewhere
	mountPinned   = "pinned"  // a directory of an overlay that cannot be renamed
)

// answer is what the first process says about its work.
type answer struct {
	Call  string `json:"call,omitempty"` // the step that failed; empty for success
	Errno int    `json:"errno,omitempty"`
	Text  string `json:"text,omitempty"`
	Gate  bool   `json:"gate,omitempty"` // the first descriptor is the listener for a proxy
}

// failure is the answer of a first process that cannot do its work.
func failure(err error) answer {
	var s *StepError
	if errors.As(err, &s) {
		return answer{Call: s.Step, Errno: int(s.Err)}
	}
	return answer{Call: "set up the sandbox", Text: err.Error()}
}

// initMain is the first process of a sandbox: it makes the sandbox's file tree and
// then only waits for orphans, until the process that made it ends.
func initMain() int {
	// It outlives every signal that a process in the sandbox may send.
	signal.Ignore()
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	if err := send(controlFD, answer{}); err != nil { // ready for the maps of users
		return 1
	}
	l, trees, err := receiveLayout()
	if err != nil {
		return 1
	}
	// From here on no process of the sandbox can look into this one. Before, the
	// files with its maps belonged to root.
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	ruleset, err := l.build(trees)
	if err != nil {
		_ = send(controlFD, failure(err))
		return 1
	}
	var fds []int
	if l.gate >= 0 {
		fds = append(fds, l.gate)
	}
	if ruleset != nil {
		fds = append(fds, int(ruleset.Fd()))
	}
	b, err := json.Marshal(answer{Gate: l.gate >= 0})
	if err == nil {
		err = fdpass.Send(controlFD, b, fds...)
	}
	if err != nil {
		return 1
	}
	if l.gate >= 0 { // only the other process may accept
		_ = unix.Close(l.gate)
	}
	go func() {
		for range children {
			for {
				if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
					break
				}
			}
		}
	}()
	var b1 [1]byte
	for {
		if n, err := unix.Read(controlFD, b1[:]); n == 0 || err != nil && err != unix.EINTR {
			return 0
		}
	}
}

// encode returns a message for that socket.
func encode(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err == nil && len(b) > maxMessage {
		err = errMessage
	}
	return b, err
}

func send(fd int, v any) error {
	b, err := encode(v)
	if err != nil {
		return err
	}
	for {
		err := unix.Sendmsg(fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// receive reads one message with its descriptors.
func receive(fd int, v any) ([]int, error) {
	b := make([]byte, maxMessage)
	control := make([]byte, fdpass.Space(maxTrees))
	for {
		n, size, flags, _, err := unix.Recvmsg(fd, b, control, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, errors.New("the other process has ended")
		}
		fds, err := fdpass.Parse(control[:size])
		switch {
		case err != nil:
			return nil, err
		case flags&unix.MSG_TRUNC != 0:
			return fds, errMessage
		case flags&unix.MSG_CTRUNC != 0:
			return fds, fdpass.ErrNone
		}
		return fds, json.Unmarshal(b[:n], v)
	}
}

// maxTrees bounds the mounts that are passed to the first process.
const maxTrees = 200

func receiveLayout() (l layout, trees []int, err error) {
	trees, err = receive(controlFD, &l)
	if err == nil && len(trees) != l.Trees {
		err = fdpass.ErrNone
	}
	return l, trees, err
}

// try returns the error of a system call with its name.
func try(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return &StepError{fmt.Sprintf(format, args...), errno}
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// devices are the devices of a sandbox.
var devices = []string{"null", "zero", "full", "random", "urandom", "tty"}

// readOnlyProc are files of /proc that change the kernel.
var readOnlyProc = []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi"}

// tmpSize bounds a private /tmp.
const tmpSize = "size=1g"

// build makes the file tree and moves into it. It returns the Landlock ruleset of
// the runs.
func (l *layout) build(trees []int) (*os.File, error) {
	l.gate = -1
	if l.Own {
		if err := errors.Join(unix.Setgroups(nil), unix.Setresgid(0, 0, 0), unix.Setresuid(0, 0, 0)); err != nil {
			return nil, try(err, "setresuid")
		}
	}
	if l.Network {
		if err := loopback(); err != nil {
			return nil, err
		}
	}
	if l.Gate {
		var err error
		if l.gate, err = listen(); err != nil {
			return nil, err
		}
	}
	if l.View {
		return nil, l.buildView()
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, try(err, "mount(MS_PRIVATE)")
	}
	works, err := l.openWorks(trees)
	if err != nil {
		return nil, err
	}
	opened := make([]int, len(l.Mounts)) // before the tree changes
	for i, m := range l.Mounts {
		switch {
		case m.Tree > 0:
			opened[i] = trees[m.Tree-1]
		case m.Kind == mountHidden, m.Kind == mountPinned:
			opened[i] = -1
		default:
			fd, err := openTree(m.Path, 0)
			if err != nil {
				return nil, err
			}
			opened[i] = fd
		}
	}
	var nodes []int
	for _, name := range l.devices() {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "/dev/"+name, unix.OPEN_TREE_CLONE|unix.O_CLOEXEC)
		if err != nil {
			return nil, try(err, "open_tree(/dev/%s)", name)
		}
		nodes = append(nodes, fd)
	}
	enter := l.enterRoot
	if l.Bare {
		enter = l.enterBare
	}
	if err := enter(trees); err != nil {
		return nil, err
	}
	if l.Hollow {
		err = l.hollow(nodes)
	} else if err = makeDev(nodes); err == nil {
		err = makeProc(l.Guest)
	}
	if err != nil {
		return nil, err
	}
	if l.Tmp {
		for _, dir := range []string{"tmp", "var/tmp"} {
			if fi, err := os.Lstat(dir); err != nil || !fi.IsDir() {
				continue
			}
			if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,"+tmpSize); err != nil {
				return nil, try(err, "mount(tmpfs on /%s)", dir)
			}
		}
	}
	for i, m := range l.Mounts {
		switch m.Kind {
		case mountOverlay:
			err = m.attachOverlay(opened[i], works[i])
		case mountHidden:
			err = m.hide("."+m.Path, l.leads(m.Path))
		default:
			err = m.attach(opened[i])
		}
		if err != nil {
			return nil, err
		}
	}
	if err := l.seal(); err != nil {
		return nil, err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return nil, try(err, "pivot_root")
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return nil, try(err, "umount2")
	}
	if err := unix.Chdir("/"); err != nil {
		return nil, try(err, "chdir")
	}
	if l.Guest {
		return nil, l.buildGuest()
	}
	if l.Landlock == 0 || l.Hollow {
		return nil, nil
	}
	writable := []string{"/dev", "/proc"}
	if l.Tmp {
		writable = append(writable, "/tmp", "/var/tmp")
	}
	for _, m := range l.Mounts {
		if m.Kind == mountWritable || m.Kind == mountOverlay {
			writable = append(writable, m.Path)
		}
	}
	if l.Open {
		writable = append(writable, "/")
	}
	if l.Bare && l.Readable == nil { // nothing, not everything
		l.Readable = []string{}
	}
	return newRuleset(l.Landlock, writable, l.Readable, l.Bare)
}

// openTree opens a mount of its own of a path, without following a symbolic link
// anywhere on the way.
func openTree(path string, flags uint) (int, error) {
	at, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return -1, try(err, "openat2(%s)", path)
	}
	defer unix.Close(at)
	fd, err := unix.OpenTree(at, "", unix.OPEN_TREE_CLONE|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE|unix.O_CLOEXEC|flags)
	if err != nil {
		return -1, try(err, "open_tree(%s)", path)
	}
	return fd, nil
}

// enterRoot makes the whole tree of the machine read-only, in a place of its own,
// and changes to it.
func (l *layout) enterRoot(trees []int) error {
	var root int
	var err error
	if len(l.Paths) > 0 {
		root = trees[0]
	} else {
		if root, err = unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.O_CLOEXEC); err != nil {
			return try(err, "open_tree(/)")
		}
		ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
		if l.Open {
			ro.Attr_set = unix.MOUNT_ATTR_NOSUID
		}
		if err := unix.MountSetattr(root, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &ro); err != nil {
			return try(err, "mount_setattr(/)")
		}
	}
	sys := -1
	if len(l.Paths) > 0 {
		if sys, err = unix.OpenTree(unix.AT_FDCWD, "/sys", unix.OPEN_TREE_CLONE|unix.AT_RECURSIVE|unix.O_CLOEXEC); err == nil {
			ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}
			if err := unix.MountSetattr(sys, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &ro); err != nil {
				return try(err, "mount_setattr(/sys)")
			}
		}
	}
	at := "/tmp"
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k"); err != nil {
		return try(err, "mount(tmpfs)")
	}
	if err := os.Mkdir(at+"/root", 0o755); err != nil {
		return try(err, "mkdir")
	}
	if err := unix.MoveMount(root, "", unix.AT_FDCWD, at+"/root", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return try(err, "move_mount(/)")
	}
	if err := unix.Chdir(at + "/root"); err != nil {
		return try(err, "chdir")
	}
	for i, path := range l.Paths {
		if i == 0 {
			continue
		}
		if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, "."+path, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return try(err, "move_mount(%s)", path)
		}
	}
	if sys >= 0 {
		if err := unix.MoveMount(sys, "", unix.AT_FDCWD, "sys", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return try(err, "move_mount(/sys)")
		}
	}
	return nil
}

// makeDev makes a /dev with the harmless devices, and terminals of its own.
func makeDev(nodes []int) error {
	if err := unix.Mount("tmpfs", "dev", "tmpfs", unix.MS_NOSUID, "mode=755,size=64m"); err != nil {
		return try(err, "mount(tmpfs on /dev)")
	}
	if err := placeDevices(devices, nodes); err != nil {
		return err
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(to, "dev/"+name); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Mkdir("dev/shm", 0o777), os.Chmod("dev/shm", 0o1777|os.ModeSticky), os.Mkdir("dev/pts", 0o755)); err != nil {
		return err
	}
	if err := unix.Mount("devpts", "dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return try(err, "mount(devpts)")
	}
	return nil
}

// placeDevices puts mounts of devices in their places in /dev.
func placeDevices(names []string, nodes []int) error {
	for i, name := range names {
		if err := os.WriteFile("dev/"+name, nil, 0o644); err != nil {
			return err
		}
		if err := unix.MoveMount(nodes[i], "", unix.AT_FDCWD, "dev/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return try(err, "move_mount(/dev/%s)", name)
		}
	}
	return nil
}

// makeProc mounts the /proc of the sandbox's processes, of which each sees only
// those it may trace. What changes the kernel is read-only. For gVisor, which mounts
// others below, it is as it is: its runs do not see it.
func makeProc(guest bool) error {
	if guest {
		return try(unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""), "mount(proc)")
	}
	if err := unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "hidepid=ptraceable"); err != nil {
		return try(err, "mount(proc)")
	}
	for _, name := range readOnlyProc {
		fd, err := unix.OpenTree(unix.AT_FDCWD, "proc/"+name, unix.OPEN_TREE_CLONE|unix.O_CLOEXEC)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return try(err, "open_tree(/proc/%s)", name)
		}
		ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &ro); err != nil {
			return try(err, "mount_setattr(/proc/%s)", name)
		}
		if err := unix.MoveMount(fd, "", unix.AT_FDCWD, "proc/"+name, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return try(err, "move_mount(/proc/%s)", name)
		}
		_ = unix.Close(fd)
	}
	return nil
}

// attach puts a mount in its place, which is made if a private directory has none.
func (m mount) attach(fd int) error {
	target := "." + cmp.Or(m.To, m.Path)
	if m.Kind == mountPinned {
		return m.pin(target)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return try(err, "fstat(%s)", m.Path)
	}
	if _, err := os.Lstat(target); errors.Is(err, os.ErrNotExist) {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = os.MkdirAll(target, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
			err = os.WriteFile(target, nil, 0o644)
		}
		if err != nil {
			return fmt.Errorf("make the place of %s: %w", m.Path, err)
		}
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if m.Kind == mountReadable {
		attr.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &attr); err != nil {
		return try(err, "mount_setattr(%s)", m.Path)
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return try(err, "move_mount(%s)", m.Path)
	}
	return nil
}

// loopback takes the loopback interface of a new network namespace up.
func loopback() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return try(err, "socket")
	}
	defer unix.Close(s)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return try(unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, lo), "ioctl(SIOCSIFFLAGS)")
}

// listen returns a socket that listens on the loopback interface of the namespace.
func listen() (int, error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, try(err, "socket")
	}
	if err := unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return -1, try(err, "bind")
	}
	return s, try(unix.Listen(s, unix.SOMAXCONN), "listen")
}

// cString returns text as the kernel takes it.
func cString(s string) (*byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, syscall.EINVAL
	}
	b := append([]byte(s), 0)
	return &b[0], nil
}
