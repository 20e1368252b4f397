//go:build amd64 || arm64

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// Programs that are not Spool's own, such as Node, cannot give up what they do not need
// before they execute anything untrusted. In the cells of this file they are started by
// the first process, which is Spool's: it makes the tree, keeps the rights of its
// namespaces for itself, and stays to hold and end what it starts.

// newLeader returns the program of a start: the first three files are its standard
// files.
func newLeader(path string, argv []string, attr *syscall.ProcAttr) *leader {
	l := &leader{path: path, argv: argv, env: attr.Env, files: attr.Files[3:]}
	copy(l.stdio[:], attr.Files)
	return l
}

// FirstFile is the first descriptor that the caller of [Cell.Start] chooses beside the
// standard files. Another is below it.
const FirstFile = controlFD + 1

// First is the first process of a cell.
type First struct {
	Pid int
	s   *sandbox
}

// Start makes a cell of its own and starts a program as the first process of it, which
// must call [Enter]. The program has the directory, the environment and the files of
// attr. It must be waited for.
func (c *Cell) Start(path string, argv []string, attr *syscall.ProcAttr) (*First, error) {
	ctx, cancel := context.WithTimeout(context.Background(), proofTime)
	defer cancel()
	proof, err := c.Proof(ctx)
	if err != nil {
		return nil, err
	}
	l := newLeader(path, argv, attr)
	s, err := putUp(c, &proof, func(w wall) (*sandbox, error) { return c.opts.lead(w, l) })
	if err != nil {
		return nil, err
	}
	return &First{s.pid, s}, nil
}

// Kill ends the processes of the cell.
func (f *First) Kill() { f.s.kill() }

// Wait waits for the end of the first process, with which every other ends, and returns
// how it ended.
func (f *First) Wait() error {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(f.Pid, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		f.s.pid = 0 // another process may have the number
		f.s.close()
		switch {
		case err != nil:
			return fmt.Errorf("wait for the first process: %w", err)
		case status.Signaled():
			return fmt.Errorf("killed by %v", status.Signal())
		case status.ExitStatus() != 0:
			return fmt.Errorf("exit status %d", status.ExitStatus())
		}
		return nil
	}
}

// lead makes a cell around a first process.
func (o *CellOptions) lead(w wall, first *leader) (_ *sandbox, err error) {
	places := make([]Place, len(o.Places))
	for i, p := range o.Places {
		if places[i].From, err = filepath.EvalSymlinks(p.From); err != nil {
			return nil, err
		}
		places[i].To = filepath.Clean(p.To)
	}
	if w.mechanism == Namespaces {
		return newSandbox(&Policy{Profile: Strict, Need: cellNeed, Cwd: "/", Bare: true, leader: first, places: places}, w.subuid, 0, nil)
	}
	s := &sandbox{pidfd: -1, control: -1, leader: first}
	l := &layout{Fence: w.mechanism}
	for _, p := range places {
		l.Mounts = append(l.Mounts, mount{Path: p.From, Kind: mountReadable})
	}
	if err = s.begin(); err == nil {
		if err = sendLayout(s.control, l, nil); err == nil {
			err = s.await()
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// Inside is a cell in its first process.
type Inside struct {
	// Proc is the /proc of the processes in the cell, which is not in their tree; nil
	// if there is none.
	Proc *os.File

	mechanism string
	rules     *os.File // of Landlock; nil without
}

// Enter makes the cell around this process, which [Cell.Start] has started.
func Enter() (*Inside, error) {
	unix.CloseOnExec(controlFD)
	if err := send(controlFD, answer{}); err != nil { // ready for the maps of users
		return nil, fmt.Errorf("enter the cell: %w", err)
	}
	l, trees, err := receiveLayout()
	if err != nil {
		return nil, fmt.Errorf("enter the cell: %w", err)
	}
	in, err := l.enter(trees)
	for _, fd := range trees {
		_ = unix.Close(fd)
	}
	if err != nil {
		_ = send(controlFD, failure(err)) // or there is no process to tell it
		return nil, fmt.Errorf("enter the cell: %w", err)
	}
	return in, send(controlFD, answer{})
}

// enter makes what the layout describes.
func (l *layout) enter(trees []int) (_ *Inside, err error) {
	in := &Inside{mechanism: Namespaces}
	switch l.Fence {
	case "":
		_, err = l.build(trees)
		in.Proc = l.proc
		return in, err
	case Landlock:
		in.mechanism = Landlock
		abi := landlockABI()
		if err := fenceable(abi); err != nil {
			return nil, err
		}
		readable := make([]string, len(l.Mounts))
		for i, m := range l.Mounts {
			readable[i] = m.Path
		}
		in.rules, err = newRuleset(abi, []string{os.DevNull}, readable, false)
		return in, err
	}
	in.mechanism = Filter
	return in, nil
}

// Path returns where a place of the cell is.
func (in *Inside) Path(p Place) string {
	if in.mechanism == Namespaces {
		return p.To
	}
	return p.From
}

// Await waits for the end of the process that made the cell. Then this one must end.
func (in *Inside) Await() {
	var b [1]byte
	for {
		if n, err := unix.Read(controlFD, b[:]); n == 0 || err != nil && err != unix.EINTR && err != unix.EAGAIN {
			return
		}
	}
}

// Fork starts a program that executes untrusted code, in place of [syscall.ForkExec]: it
// has no capabilities and cannot get any, and has the system calls that the filter
// allows. Where the cell has no namespaces, the end of the calling thread ends it.
func (in *Inside) Fork(path string, argv []string, attr *syscall.ProcAttr, filter seccomp.Program) (int, error) {
	l, err := cellLimits()
	if err != nil {
		return 0, err
	}
	c := child{join: none, ruleset: none, dropCaps: true, filter: program(filter)}
	if in.mechanism == Namespaces {
		c.owner, c.nosuid = true, true
	} else {
		c.parent = uintptr(os.Getpid())
	}
	if in.rules != nil {
		c.ruleset = in.rules.Fd()
	}
	return c.forkExec(path, argv, attr, l)
}

// devices lists the devices of the tree.
func (l *layout) devices() []string {
	if l.Hollow {
		return []string{"null"}
	}
	return devices
}

// hostName is the name of the machine in a hollow tree.
const hostName = "sandbox"

// hollow completes a hollow tree: with the devices that it has, and with a /proc that only
// this process has, which opens it and takes it off again. Where there cannot be a /proc
// there is none.
func (l *layout) hollow(nodes []int) error {
	if err := unix.Sethostname([]byte(hostName)); err != nil {
		return try(err, "sethostname")
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	for _, fd := range nodes {
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &ro); err != nil {
			return try(err, "mount_setattr(/dev)")
		}
	}
	if err := placeDevices(l.devices(), nodes); err != nil {
		return err
	}
	if unix.Mount("proc", "proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") == nil {
		f, err := os.Open("proc")
		if err == nil {
			err = unix.Unmount("proc", unix.MNT_DETACH)
		}
		if err != nil {
			return fmt.Errorf("open /proc: %w", err)
		}
		l.proc = f
	}
	return os.Remove("proc")
}

// fenceable reports why a version of Landlock is not enough for a wall.
func fenceable(abi int) error {
	switch {
	case abi == 0:
		return errors.New("the kernel has no Landlock")
	case abi < abiTruncate:
		return fmt.Errorf("the kernel has version %d of Landlock, and %d is needed", abi, abiTruncate)
	}
	return nil
}
