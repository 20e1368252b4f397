//go:build amd64 || arm64

package isolate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/launch"
)

// guestMain is the first process on gVisor's kernel. It starts the program, passes
// signals on to it, says how it ended, and reaps orphans until none is left. Its
// descriptors are those of the program, then the spec, the signals of
// the terminal, the reports, and the signals of Spool with what became of them.
func guestMain(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return 2
	}
	for fd := n; fd < n+5; fd++ {
		unix.CloseOnExec(fd)
	}
	reports := json.NewEncoder(os.NewFile(uintptr(n+2), "reports"))
	g, err := readSpec(n)
	if err != nil {
		_ = reports.Encode(guestReport{Text: fmt.Sprintf("read what is to be started: %v", err)})
		return 1
	}
	pid, err := g.start()
	if err != nil {
		r := guestReport{Text: err.Error()}
		var errno syscall.Errno
		if errors.As(err, &errno) {
			r = guestReport{Errno: int(errno)}
		}
		_ = reports.Encode(r)
		return 1
	}
	if err := reports.Encode(guestReport{}); err != nil {
		return 1
	}
	go g.passSignals(n+1, -1, pid)
	go g.passSignals(n+3, n+4, pid)
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // none is left
			return 0
		case ended == pid && (status.Exited() || status.Signaled()):
			var left bool
			for { // orphans that have ended already
				other, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
				if other <= 0 && err != unix.EINTR {
					left = err == nil
					break
				}
			}
			if err := reports.Encode(guestReport{Ended: true, Status: int(status), Left: left}); err != nil {
				return 1
			}
		}
	}
}

// start executes the program.
func (g *guestSpec) start() (int, error) {
	strings := func(list [][]byte) []string {
		result := make([]string, 0, len(list))
		for _, b := range list {
			result = append(result, string(b))
		}
		return result
	}
	attr := &syscall.ProcAttr{Env: strings(g.Env), Sys: &syscall.SysProcAttr{Setsid: true}}
	if g.TTY { // the terminal is that of this process's session
		attr.Sys = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	}
	for fd := range g.Files {
		attr.Files = append(attr.Files, uintptr(fd))
	}
	return syscall.ForkExec(string(g.Path), strings(g.Argv), attr)
}

// passSignals sends the signals that it reads, and writes to done, if that is not -1,
// after each.
func (g *guestSpec) passSignals(fd, done, pid int) {
	b := make([]byte, 2)
	for {
		n, err := unix.Read(fd, b) // a write of two bytes to a pipe is one
		if err == unix.EINTR {
			continue
		}
		if n != len(b) {
			return
		}
		to := -pid
		switch b[0] {
		case byte(launch.All):
			to = -1
		case byte(launch.Foreground):
			if front, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); g.TTY && err == nil && front > 1 {
				to = -front
			}
		}
		_ = unix.Kill(to, unix.Signal(b[1])) // there may be none
		if done >= 0 {
			_, _ = unix.Write(done, b[:1])
		}
	}
}

// buildGuest prepares what runsc needs, as the last step of a sandbox.
func (l *layout) buildGuest() error {
	for _, dir := range []string{guestDir, guestRoot, guestBundle, guestState} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	if l.Readable == nil || l.Bare { // the tree of the sandbox is that of the run
		return nil
	}
	if err := unix.Mount("tmpfs", guestRoot, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755,size=1m"); err != nil {
		return try(err, "mount(tmpfs on %s)", guestRoot)
	}
	for _, path := range l.visible() {
		if err := show(path); err != nil {
			return err
		}
	}
	for _, dir := range []string{"/dev", "/proc", "/sys", "/tmp", "/var/tmp"} {
		if err := os.MkdirAll(guestRoot+dir, 0o755); err != nil {
			return err
		}
	}
	ro := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	return try(unix.MountSetattr(unix.AT_FDCWD, guestRoot, 0, &ro), "mount_setattr(%s)", guestRoot)
}

// visible lists what a run in gVisor sees of the sandbox's tree, a directory before
// what is in it.
func (l *layout) visible() []string {
	list := slices.Clone(l.Readable)
	if l.Tmp {
		list = append(list, "/tmp", "/var/tmp")
	}
	for _, m := range l.Mounts {
		if m.Kind != mountHidden {
			list = append(list, m.Path)
		}
	}
	slices.Sort(list)
	var result []string
	for _, path := range list {
		seen := slices.ContainsFunc(append(result, "/dev", "/proc", "/sys"), func(dir string) bool { return Below(dir, path) })
		if !seen {
			result = append(result, path)
		}
	}
	return result
}

// show makes a path visible in the tree of a run in gVisor, as it is in that of the
// sandbox.
func show(path string) error {
	target := guestRoot + path
	fi, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	switch {
	case fi.Mode()&os.ModeSymlink != 0:
		to, err := os.Readlink(path)
		if err != nil {
			return err
		}
		return os.Symlink(to, target)
	case fi.IsDir():
		err = os.Mkdir(target, 0o755)
	default:
		err = os.WriteFile(target, nil, 0o644)
	}
	if err != nil {
		return err
	}
	fd, err := openTree(path, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return try(unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH), "move_mount(%s)", path)
}
