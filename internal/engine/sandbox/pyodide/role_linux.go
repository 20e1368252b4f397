//go:build amd64 || arm64

package pyodide

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors of the stages of the role.
const (
	fdControl  = 3 // to the host
	fdSnapshot = 4 // the snapshot, or nothing of interest
	fdTrees    = 5 // mounts that the outer stage made, if it could
)

// RunRole is the life of a process of [Role]: args are what follows the role's
// name. It returns the exit code.
//
// The outer stage is a small process that may ask for namespaces without
// copying the memory of a server; the inner one is the first process in them,
// makes the protections and then holds interpreters.
func RunRole(args []string) int {
	if err := runRole(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runRole(args []string) error {
	if len(args) != 2 {
		return errors.New("spool starts this process itself; it is not a command")
	}
	var p plan
	if err := json.Unmarshal([]byte(args[1]), &p); err != nil {
		return fmt.Errorf("decode plan: %w", err)
	}
	switch args[0] {
	case stageOuter:
		return outer(p)
	case stageInner:
		return inner(p)
	}
	return fmt.Errorf("no stage %q", args[0])
}

// How the complaints of the stages begin that mean that there cannot be such
// protections here.
const (
	makingNamespaces  = "make namespaces"
	makingProtections = "set up the protections"
)

// The stages.
const (
	stageOuter = "outer"
	stageInner = "inner"
)

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET

// outer starts the inner stage in namespaces and waits for it.
func outer(p plan) error {
	if p.Bare != "" {
		return inner(p)
	}
	// The death of the host closes the control socket, which the inner
	// stage sees; this process only follows.
	uid, gid := os.Getuid(), os.Getgid()
	attr := &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: uid != 0},
	}
	files := []*os.File{os.NewFile(fdControl, "control"), os.NewFile(fdSnapshot, "snapshot")}
	if uid == 0 && p.HostUID != 0 {
		// Root inside must not be root outside: much of /proc/sys asks
		// for nothing else. Only root can reach files that belong to
		// root, so root makes the mounts.
		uid, gid = p.HostUID, p.HostUID
		attr.GidMappingsEnableSetgroups = true
		trees, err := p.trees()
		if err != nil {
			return err
		}
		p.UseTrees = true
		files = append(files, trees...)
	}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}}
	arg, err := json.Marshal(p)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", Role, stageInner, string(arg))
	cmd.Args[0] = os.Args[0]
	cmd.Env = []string{}
	cmd.SysProcAttr, cmd.ExtraFiles = attr, files
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf(makingNamespaces+": %w", err)
	}
	for _, f := range files { // the inner stage has them now
		_ = f.Close()
	}
	return cmd.Wait()
}

// place is one thing of this machine in the root of the interpreters.
type place struct {
	from, to string
	dir      bool
}

// places are what the interpreters see of this machine.
func (p *plan) places() []place {
	list := []place{
		{from: p.Node, to: guestNode},
		{from: p.Dist, to: guestDist, dir: true},
		{from: "/dev/null", to: "/dev/null"},
	}
	if p.Packages != "" {
		list = append(list, place{from: p.Packages, to: guestPackages, dir: true})
	}
	for _, lib := range p.Libs {
		list = append(list, place{from: lib, to: lib})
	}
	return list
}

// trees takes a copy of each mount.
func (p *plan) trees() ([]*os.File, error) {
	var list []*os.File
	for _, pl := range p.places() {
		f, err := openTree(pl.from)
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

func openTree(path string) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, &os.PathError{Op: "open_tree", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
